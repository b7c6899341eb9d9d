//! The bare ring, a program in C (`ring.c`) that is compiled when it is measured.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lab::failure::{Explain, Failure, Result};

use crate::bench::cores::Cores;

const SOURCE: &str = include_str!("ring.c");

/// The program, in a directory of its own.
pub struct BareRing {
    directory: PathBuf,
}

impl BareRing {
    /// Compiles it.
    ///
    /// # Errors
    /// Without a C compiler.
    pub fn compile() -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("outboard-ring-{}", std::process::id()));
        std::fs::create_dir_all(&directory)
            .explain(format!("cannot make {}", directory.display()), "make room in TMPDIR")?;
        let ring = Self { directory };
        let source = ring.directory.join("ring.c");
        std::fs::write(&source, SOURCE)
            .explain(format!("cannot write {}", source.display()), "make room in TMPDIR")?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O3", "-pthread", "-o"]).arg(ring.program()).arg(&source);
        let output = compiler.output().explain("cannot run cc", "install gcc")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::new(format!("cc failed: {said}"), "report this"));
        }
        Ok(ring)
    }

    fn program(&self) -> PathBuf {
        self.directory.join("ring")
    }

    /// Blocks of `bytes` that passed in the window, and the seconds that it took.
    ///
    /// # Errors
    /// When the program fails.
    pub fn run(&self, bytes: usize, cores: Cores, window: Duration) -> Result<(u64, f64)> {
        let words = [cores.engine, cores.program, bytes, window.as_millis().max(1) as usize];
        let output = Command::new(self.program())
            .args(words.map(|word| word.to_string()))
            .output()
            .explain("cannot run the bare ring", "report this")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let mut fields = said.split_whitespace();
        let count = fields.next().and_then(|field| field.parse().ok());
        let seconds = fields.next().and_then(|field| field.parse().ok());
        count.zip(seconds).filter(|_| output.status.success()).ok_or_else(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            Failure::new(format!("the bare ring fails: {}{said}", output.status), "report this")
        })
    }
}

impl Drop for BareRing {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
