//! The rules of the tree that the compiler does not know. Each module holds one rule and gives a
//! sentence for every place where the tree breaks it; each is a test, too.

mod edges;
mod licences;
mod links;
mod names;
mod signatures;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cargo;

/// Checks everything and shows all that is wrong.
pub fn run(root: &Path) -> Result<(), String> {
    let metadata = Metadata::of(root)?;
    let tree = Tree::of(root)?;
    let mut faults = edges::check(&metadata);
    faults.extend(licences::check(root, &metadata)?);
    faults.extend(sources::check(&tree));
    faults.extend(links::check(&tree));
    faults.extend(names::check(&tree));
    faults.extend(signatures::check(&tree));
    if faults.is_empty() {
        println!(
            "tidy: {} files, {} packages, no fault",
            tree.files.len(),
            metadata.packages.len()
        );
        return Ok(());
    }
    Err(format!("{}\ntidy: {} faults", faults.join("\n"), faults.len()))
}

/// What `cargo metadata` says, as far as we read it.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
}

impl Metadata {
    pub fn of(root: &Path) -> Result<Self, String> {
        let output = cargo()
            .args(["metadata", "--format-version", "1", "--locked"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("cargo metadata could not be started: {error}"))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(format!("cargo metadata failed: {message}"));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("cargo metadata is not as expected: {error}"))
    }

    fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

/// The tree's text files.
pub struct Tree {
    root: PathBuf,
    files: Vec<SourceFile>,
}

/// A file of the tree.
pub struct SourceFile {
    /// From the tree's root.
    pub path: String,
    /// All of it.
    pub text: String,
}

/// Not ours, or made by tools.
const SKIPPED_FOLDERS: [&str; 4] = ["target", ".git", "artifacts", "corpus"];

impl Tree {
    /// Reads the files under a folder.
    pub fn of(root: &Path) -> Result<Self, String> {
        let mut tree = Tree { root: root.to_owned(), files: Vec::new() };
        tree.walk(root)?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn walk(&mut self, folder: &Path) -> Result<(), String> {
        let entries =
            fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in entries {
            let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if path.is_dir() {
                if !SKIPPED_FOLDERS.contains(&name) {
                    self.walk(&path)?;
                }
            } else if [".rs", ".md", ".pkt"].iter().any(|end| name.ends_with(end)) {
                let text = fs::read_to_string(&path)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
                let path = path.strip_prefix(&self.root).unwrap_or(&path).display().to_string();
                self.files.push(SourceFile { path, text });
            }
        }
        Ok(())
    }

    /// The files whose names end so.
    pub fn with_extension<'a>(
        &'a self,
        extension: &'a str,
    ) -> impl Iterator<Item = &'a SourceFile> {
        self.files.iter().filter(move |file| file.path.ends_with(extension))
    }

    fn has(&self, path: &str) -> bool {
        self.files.iter().any(|file| file.path == path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_keeps_its_rules() {
        if let Err(faults) = run(&crate::root()) {
            panic!("{faults}");
        }
    }
}
