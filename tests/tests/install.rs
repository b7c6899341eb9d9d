//! What `make install` puts where, and whether a service manager would take it.

use std::path::{Path, PathBuf};
use std::process::Command;

use outboard_tests::world::executable;

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a command and gives what it said; panics when it fails.
fn run(command: &mut Command) -> String {
    let output = command.output();
    let output =
        output.unwrap_or_else(|why| panic!("{command:?}: {why}: run scripts/setup programs"));
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    said.into_owned()
}

/// Installs into a directory of its own.
fn installed(name: &str) -> PathBuf {
    let root = std::env::temp_dir().join(format!("outboard-{name}-{}", std::process::id()));
    // What make would build is not of interest here.
    let built = root.join("built");
    std::fs::create_dir_all(&built).expect("a directory");
    for file in ["outboard", "liboutboard_preload.so", "liboutboard_fi.so"] {
        std::fs::write(built.join(file), "").expect("a file");
    }
    let make = format!("DESTDIR={} PREFIX=/usr BUILT={}", root.display(), built.display());
    run(Command::new("make")
        .current_dir(tree())
        .args(["-o", "build", "install"])
        .args(make.split(' ')));
    root
}

#[test]
fn make_install_puts_everything_in_its_place_and_keeps_settings_that_are_there() {
    let root = installed("install");
    for path in [
        "usr/bin/outboard",
        "usr/lib/outboard/liboutboard_preload.so",
        "usr/lib/outboard/liboutboard-fi.so",
        "usr/lib/systemd/system/outboard.service",
        "usr/lib/sysusers.d/outboard.conf",
        "etc/outboard/engine.toml",
    ] {
        assert!(root.join(path).is_file(), "{path}");
    }
    let settings = root.join("etc/outboard/engine.toml");
    std::fs::write(&settings, "# mine\n").expect("written");
    installed("install");
    assert_eq!(std::fs::read_to_string(&settings).expect("there"), "# mine\n");
    std::fs::remove_dir_all(root).expect("removed");
}

#[test]
fn make_finds_what_cargo_built_wherever_that_is() {
    for goal in ["test", "install", "demo", "sim", "scale", "bench-port", "run-scripts"] {
        let said = run(Command::new("make")
            .current_dir(tree())
            .env("CARGO_TARGET_DIR", "elsewhere/built")
            .args(["--dry-run", "--no-print-directory", goal]));
        let absolute = tree().canonicalize().expect("a tree").join("elsewhere/built/release/");
        assert!(said.contains(&absolute.display().to_string()), "{goal}: {said}");
        assert!(!said.contains("target/release"), "{goal}: {said}");
    }
}

#[test]
fn the_settings_that_are_installed_are_correct() {
    let executable = executable().expect("built");
    let text = std::fs::read_to_string(tree().join("dist/engine.toml")).expect("there");
    let file = std::env::temp_dir().join(format!("outboard-settings-{}", std::process::id()));
    // The group is made at installation.
    std::fs::write(&file, text.replace("\"outboard\"", "\"root\"")).expect("written");
    let said = run(Command::new(executable).arg("check-config").arg(&file));
    assert!(said.contains("is correct"), "{said}");
    std::fs::remove_file(file).expect("removed");
}

#[test]
fn systemd_takes_the_unit_and_makes_the_user() {
    let root = installed("systemd");
    let unit = root.join("usr/lib/systemd/system/outboard.service");
    // The program must be where the unit says; that it is installed there is another test's.
    let text = std::fs::read_to_string(&unit).expect("there");
    assert!(text.contains("ExecStart=/usr/bin/outboard engine"), "{text}");
    let checked = root.join("outboard.service");
    std::fs::write(&checked, text.replace("/usr/bin/outboard", "/bin/true")).expect("written");
    let said = run(Command::new("systemd-analyze").arg("verify").arg(&checked));
    assert!(!said.contains("outboard"), "{said}");
    run(Command::new("systemd-sysusers").arg(format!("--root={}", root.display())));
    let users = std::fs::read_to_string(root.join("etc/passwd")).expect("made");
    assert!(users.lines().any(|line| line.starts_with("outboard:")), "{users}");
    std::fs::remove_dir_all(root).expect("removed");
}
