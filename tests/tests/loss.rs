//! Transfers over paths that lose segments, in both directions of being accelerated.

use outboard::loss::whole::WholeTransfer;
use outboard::loss::{Arrangement, lab};
use outboard_tests::turn;
use outboard_tests::world::executable;

/// Bytes of a transfer.
const BYTES: u64 = 20_000_000;
/// Counters of what a loss alone must not bring about.
const TROUBLE: [&str; 3] = ["tcp_timed_out", "tcp_resets_sent", "tcp_resets_received"];

#[test]
fn what_is_sent_over_a_path_that_loses_arrives_whole() {
    let Some(_turn) = turn("what_is_sent_over_a_path_that_loses_arrives_whole") else { return };
    let (lab, executable) = (lab().expect("a laboratory"), executable().expect("built"));
    for arrangement in [Arrangement::Sender, Arrangement::Receiver] {
        for (number, loss_ppm) in [1_000, 10_000, 50_000].into_iter().enumerate() {
            let transfer = WholeTransfer { number, arrangement, loss_ppm, bytes: BYTES };
            let moved = transfer
                .run(&lab, &executable)
                .unwrap_or_else(|failure| panic!("{arrangement:?} at {loss_ppm}: {failure}"));
            assert!(moved.lost > 0, "the path has lost nothing");
            for name in TROUBLE {
                assert_eq!(moved.counters[name], 0, "{name}, {arrangement:?} at {loss_ppm}");
            }
            if arrangement == Arrangement::Sender {
                assert!(moved.counters["tcp_retransmits"] > 0, "nothing was sent again");
            }
        }
    }
}
