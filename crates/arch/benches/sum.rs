//! Sums and copies, in bytes per nanosecond, against plain scalar code. Run with
//! `cargo bench -p outboard-arch`; the best of several rounds is shown, so that a busy machine
//! disturbs little.

use std::hint::black_box;
use std::time::Instant;

use outboard_arch::{SharedBytes, copy_and_sum, sum};

/// What a careful C programmer would write without vectors: 64-bit words, carries added back.
fn scalar_sum(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut total = 0u64;
    for &word in words {
        let (next, carry) = total.overflowing_add(u64::from_le_bytes(word));
        total = next + u64::from(carry);
    }
    for pair in rest.chunks(2) {
        let word = u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << 8;
        let (next, carry) = total.overflowing_add(word);
        total = next + u64::from(carry);
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    (total as u16).swap_bytes()
}

fn best_rate(len: usize, mut work: impl FnMut()) -> f64 {
    let repeats = (1 << 22) / len;
    let mut best = f64::MAX;
    for _ in 0..15 {
        let start = Instant::now();
        for _ in 0..repeats {
            work();
        }
        best = best.min(start.elapsed().as_nanos() as f64);
    }
    (repeats * len) as f64 / best
}

fn main() {
    println!(
        "{:>7} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "bytes", "scalar", "sum", "memcpy", "copy+sum", "shared"
    );
    for len in [20, 64, 128, 536, 1448, 4096, 8192, 65536] {
        let src: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        let mut dst = vec![0u8; len];
        assert_eq!(scalar_sum(&src), sum(&src));
        let scalar = best_rate(len, || {
            black_box(scalar_sum(black_box(&src)));
        });
        let vector = best_rate(len, || {
            black_box(sum(black_box(&src)));
        });
        let copy = best_rate(len, || {
            black_box(&mut dst).copy_from_slice(black_box(&src));
        });
        let fused = best_rate(len, || {
            black_box(copy_and_sum(black_box(&mut dst), black_box(&src)));
        });
        let shared = best_rate(len, || {
            black_box(
                SharedBytes::from_slice(black_box(&src)).copy_to_and_sum(black_box(&mut dst)),
            );
        });
        println!(
            "{len:>7} {scalar:>10.1} {vector:>10.1} {copy:>10.1} {fused:>10.1} {shared:>10.1}"
        );
    }
}
