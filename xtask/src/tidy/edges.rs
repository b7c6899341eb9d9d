//! Which room may depend on which. The list is the architecture; a new arrow is added here on
//! purpose, with the reason in ARCHITECTURE.md, or not at all.

use super::Metadata;

/// Every package of the workspace, and the packages of the workspace that it may use, both without
/// their prefix.
const ARROWS: &[(&str, &str)] = &[
    // What tests of any room call where they cannot run.
    ("skips", ""),
    ("arch", ""),
    ("wire", "arch"),
    ("shm", "arch"),
    ("stack", "wire"),
    ("port", "skips arch wire"),
    ("engine", "arch wire stack shm port"),
    ("client", "shm"),
    ("sim", "arch wire stack shm port engine client"),
    ("script", "wire stack shm port engine client sim"),
    ("preload", "client"),
    ("fabric", "client"),
    ("packetdrill", "engine client script"),
    ("lab", "port shm sim"),
    // Its test runs a program of its own in a laboratory.
    ("inline", "skips stack shm port engine client lab"),
    ("cli", "wire stack shm port engine client sim script lab"),
    // The tests see programs only from outside; the tools see no room at all.
    ("tests", "skips lab cli"),
    ("xtask", ""),
    ("fuzz-targets", "wire stack shm port engine client sim cli"),
];

/// A package's name in the list.
fn room(package: &str) -> &str {
    if package == "outboard" { "cli" } else { package.strip_prefix("outboard-").unwrap_or(package) }
}

/// A sentence for every arrow that is not in the list, and every package that is not.
pub fn check(metadata: &Metadata) -> Vec<String> {
    let mut faults = Vec::new();
    let members: Vec<&str> = metadata.members().map(|package| package.name.as_str()).collect();
    for package in metadata.members() {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == room(&package.name))
        else {
            faults.push(format!(
                "package {} is not in xtask's list of arrows: add it with what it may use",
                package.name
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            if members.contains(&name) && !allowed.split(' ').any(|one| one == room(name)) {
                faults.push(format!("{} may not depend on {name}", package.name));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{Dependency, Package};

    fn metadata(name: &str, dependency: &str) -> Metadata {
        let package = |name: &str, dependencies: Vec<Dependency>| Package {
            id: name.to_owned(),
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            license: None,
            dependencies,
        };
        let dependencies = vec![Dependency { name: dependency.to_owned() }];
        Metadata {
            workspace_members: vec![name.to_owned(), dependency.to_owned()],
            packages: vec![package(name, dependencies), package(dependency, Vec::new())],
        }
    }

    #[test]
    fn a_listed_arrow_passes() {
        assert!(check(&metadata("outboard-client", "outboard-shm")).is_empty());
    }

    #[test]
    fn an_arrow_that_is_not_listed_is_a_fault() {
        let faults = check(&metadata("outboard-client", "outboard-stack"));
        assert_eq!(faults, ["outboard-client may not depend on outboard-stack"]);
    }

    #[test]
    fn the_list_has_no_circle() {
        // Rooms are listed after everything that they use, except for tools that use none.
        for (position, (name, uses)) in ARROWS.iter().enumerate() {
            for used in uses.split_terminator(' ') {
                let at = ARROWS.iter().position(|(listed, _)| *listed == used);
                assert!(at.is_some_and(|at| at < position), "{name} uses {used}");
            }
        }
    }
}
