//! Names of users and groups, as the files of the system have them.

use std::fs;

use lab::failure::{Failure, Result};

/// A user of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// Its number.
    pub user: u32,
    /// Number of its group.
    pub group: u32,
}

/// Fields of the line that begins with `name` in the text of /etc/passwd or /etc/group.
fn fields<'a>(text: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<&str>>());
    lines.find(|fields| fields.first() == Some(&name))
}

fn number(fields: &[&str], at: usize) -> Option<u32> {
    fields.get(at)?.parse().ok()
}

fn user_in(text: &str, name: &str) -> Option<User> {
    let fields = fields(text, name)?;
    Some(User { user: number(&fields, 2)?, group: number(&fields, 3)? })
}

fn missing(what: &str, name: &str, make: &str) -> Failure {
    Failure::new(format!("there is no {what} {name:?}"), format!("create it ({make} {name})"))
}

/// The user called `name`.
///
/// # Errors
/// When /etc/passwd has none.
pub fn user(name: &str) -> Result<User> {
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    user_in(&text, name).ok_or_else(|| missing("user", name, "useradd --system"))
}

/// Number of the user that is called so, or has that number.
///
/// # Errors
/// As [`user`].
pub fn user_number(name: &str) -> Result<u32> {
    name.parse().or_else(|_| user(name).map(|user| user.user))
}

/// Number of the group that is called so, or has that number.
///
/// # Errors
/// When /etc/group has none.
pub fn group_number(name: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let text = fs::read_to_string("/etc/group").unwrap_or_default();
    let found = fields(&text, name).and_then(|fields| number(&fields, 2));
    found.ok_or_else(|| missing("group", name, "groupadd --system"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_the_systems_files() {
        let text = "root:x:0:0:root:/root:/bin/sh\nob:x:990:991::/:/usr/sbin/nologin\nodd:x\n";
        assert_eq!(user_in(text, "ob"), Some(User { user: 990, group: 991 }));
        assert_eq!(user_in(text, "o"), None);
        assert_eq!(user_in(text, "odd"), None);
        assert_eq!(user("root").unwrap(), User { user: 0, group: 0 });
        assert_eq!((user_number("root").unwrap(), group_number("17").unwrap()), (0, 17));
        let said = user("outboard-no-such").unwrap_err().to_string();
        assert!(said.contains("useradd --system outboard-no-such"), "{said}");
    }
}
