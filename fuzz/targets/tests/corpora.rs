//! Replays every target's corpus, and inputs derived from it, with the stable compiler.

use std::fs;
use std::path::PathBuf;

use outboard_fuzz_targets::TARGETS;

fn fuzz_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn every_corpus_passes_its_target() {
    for (name, run) in TARGETS {
        let folder = fuzz_folder().join("corpus").join(name);
        let mut inputs: Vec<_> = fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.expect("readable").path())
            .collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{} has no input", folder.display());
        for input in inputs {
            let bytes =
                fs::read(&input).unwrap_or_else(|error| panic!("{}: {error}", input.display()));
            // Shown by the test runner only if the target panics.
            println!("{name} {}", input.display());
            run(&bytes);
        }
    }
}

#[test]
fn every_cut_and_every_wrong_byte_of_a_corpus_passes_its_target() {
    for (name, run) in TARGETS {
        for entry in fs::read_dir(fuzz_folder().join("corpus").join(name)).expect("a corpus") {
            let path = entry.expect("readable").path();
            let bytes = fs::read(&path).expect("readable");
            println!("{name} {}", path.display());
            // Long inputs are sampled, so that this stays a test of seconds.
            let step = bytes.len() / 256 + 1;
            for at in (0..bytes.len()).step_by(step) {
                run(&bytes[..at]);
                for wrong in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                    let mut changed = bytes.clone();
                    changed[at] ^= wrong;
                    run(&changed);
                }
            }
        }
    }
}

#[test]
fn every_target_has_its_binary() {
    let manifest = fs::read_to_string(fuzz_folder().join("Cargo.toml")).expect("a manifest");
    for (name, _) in TARGETS {
        assert!(
            manifest.contains(&format!("name = \"{name}\"")),
            "{name} is not in fuzz/Cargo.toml"
        );
        let file = fuzz_folder().join("fuzz_targets").join(name).with_extension("rs");
        assert!(file.exists(), "{} is missing", file.display());
    }
}
