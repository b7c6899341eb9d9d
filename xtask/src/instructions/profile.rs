//! A profile that callgrind has written, by source file.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Instructions by where their source is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Of the executable: by source file of the tree, or by crate.
    pub files: BTreeMap<String, u64>,
    /// Of shared objects, which is the C library.
    pub libc: u64,
}

impl Profile {
    /// Reads callgrind's output for `executable`, whose sources lie in `root`.
    pub fn read(text: &str, executable: &Path, root: &Path) -> Result<Self, String> {
        let mut profile = Self::default();
        let mut names = Names::default();
        let (mut object, mut file) = (String::new(), String::new());
        let mut is_call = false;
        for line in text.lines() {
            if let Some((key, value)) = line.split_once('=') {
                match key {
                    "ob" => object = names.objects.name(value)?,
                    "fl" | "fi" | "fe" => file = names.files.name(value)?,
                    // These are used again by their numbers.
                    "cob" => drop(names.objects.name(value)?),
                    "cfi" | "cfl" => drop(names.files.name(value)?),
                    "calls" => is_call = true,
                    _ => {}
                }
                continue;
            }
            if !line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                continue;
            }
            // What was called has lines of its own.
            if std::mem::take(&mut is_call) {
                continue;
            }
            let cost = line.split(' ').nth(1).unwrap_or("0");
            let cost: u64 = cost.parse().map_err(|_| format!("`{line}` is no cost"))?;
            if Path::new(&object) == executable {
                *profile.files.entry(place(&file, root)).or_default() += cost;
            } else {
                profile.libc += cost;
            }
        }
        if profile.files.is_empty() {
            return Err("nothing was counted".to_owned());
        }
        Ok(profile)
    }

    /// Instructions of the executable.
    pub fn own(&self) -> u64 {
        self.files.values().sum()
    }
}

/// Names that are written once, with a number: `(3) name`, and `(3)` from then on.
#[derive(Default)]
struct Names {
    objects: Numbered,
    files: Numbered,
}

#[derive(Default)]
struct Numbered(HashMap<String, String>);

impl Numbered {
    fn name(&mut self, text: &str) -> Result<String, String> {
        let Some((number, name)) = text.strip_prefix('(').and_then(|rest| rest.split_once(')'))
        else {
            return Ok(text.to_owned());
        };
        if let Some(name) = name.strip_prefix(' ') {
            self.0.insert(number.to_owned(), name.to_owned());
        }
        self.0.get(number).cloned().ok_or_else(|| format!("({number}) was never named"))
    }
}

/// A file of the tree as it is; others by the crate that they belong to.
fn place(file: &str, root: &Path) -> String {
    if let Ok(inside) = Path::new(file).strip_prefix(root) {
        return inside.display().to_string();
    }
    if let Some((_, rest)) = file.split_once("/registry/src/") {
        let package = rest.split('/').nth(1).unwrap_or(rest);
        return package.rsplit_once('-').map_or(package, |(name, _)| name).to_owned();
    }
    match file.split_once("/library/") {
        Some((_, rest)) => format!("{} (Rust)", rest.split('/').next().unwrap_or(rest)),
        None if file.starts_with("crates/") => file.to_owned(),
        None => "elsewhere".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_go_to_the_file_of_their_line_and_calls_are_not_counted_twice() {
        let text = "\
events: Ir
ob=(1) /t/x
fl=(1) /r/crates/a/src/lib.rs
fn=(1) one
5 100
fi=(2) /rustc/1/library/core/src/x.rs
+1 10
fe=(1)
* 1
cob=(2) /lib/libc.so.6
cfi=(3) /c/registry/src/i/rustix-1.1.2/src/y.rs
cfn=(2) memcpy
calls=7 0
9 5000
6 2
ob=(2)
fl=(4) ???
fn=(2)
0 40
ob=(1)
fl=(3)
fn=(3) y
1 3
";
        let profile = Profile::read(text, Path::new("/t/x"), Path::new("/r")).unwrap();
        assert_eq!((profile.own(), profile.libc), (116, 40));
        let files = [("core (Rust)", 10), ("crates/a/src/lib.rs", 103), ("rustix", 3)];
        assert_eq!(profile.files, files.map(|(name, cost)| (name.to_owned(), cost)).into());
        assert!(Profile::read("fl=(9)\n", Path::new("/t/x"), Path::new("/r")).is_err());
        assert!(Profile::read("events: Ir\n", Path::new("/t/x"), Path::new("/r")).is_err());
    }
}
