//! What has been sent and not acknowledged: when, and what became of it.
//!
//! The bytes from snd.una to snd.nxt lie in *pieces*, in order and without gaps. Bytes that were
//! sent at the same time are one piece until an acknowledgement parts them, so a burst costs as
//! much as a segment. Losses are looked for in the order of sending without looking at every
//! piece: what was sent once is in this order already, and a cursor remembers how far it has been
//! judged; what was sent again stands in a queue of its own.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::cuts::Cuts;
use super::intervals::Range;
use super::rate::Snapshot;

/// Pieces beyond which what is sent joins the piece before it, whose time of sending becomes the
/// later one, and SACK blocks that would part a piece are not taken.
pub const PIECES_MAX: usize = 2048;
/// Pieces beyond which none is parted at all: a retransmission counts for all of its last piece,
/// and what it left out is found lost once more.
const PIECES_LIMIT: usize = 2 * PIECES_MAX;
/// Retransmissions watched for loss at a time; the oldest is left to the timeout beyond them.
const RESENT_MAX: usize = 1024;
/// Most bytes looked at for one retransmission.
const RUN_MAX: u64 = 1 << 16;

/// What is known of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// On its way.
    Sent,
    /// Lost and not sent again yet.
    Lost,
    /// Selectively acknowledged.
    Sacked,
}

/// Bytes with one history.
//= https://www.rfc-editor.org/rfc/rfc8985#section-4
//# the sender MUST store its most recent transmission time with a timestamp whose granularity is
//# finer than 1/4 of the minimum RTT of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// First position.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// When it was last sent, nanoseconds.
    pub at: u64,
    /// What became of it.
    pub fate: Fate,
    /// It was sent more than once.
    pub again: bool,
    /// It was found lost, and has not been forgiven since.
    pub lost: bool,
    /// Where the segments and frames end that it was sent in.
    pub cuts: Cuts,
    /// What was known of the delivery rate when it was last sent.
    pub snapshot: Snapshot,
}

impl Piece {
    fn len(&self) -> u64 {
        self.end - self.start
    }

    /// The first end of a segment at or behind `offset`, which lies within.
    fn ceil(&self, offset: u64) -> u64 {
        (self.start + self.cuts.ceil(offset - self.start)).min(self.end)
    }

    /// The last end of a segment at or before `offset`, which lies within.
    fn floor(&self, offset: u64) -> u64 {
        if offset >= self.end { offset } else { self.start + self.cuts.floor(offset - self.start) }
    }

    /// Leaves what lies before `start`, which is within, to others.
    fn begin_at(&mut self, start: u64) {
        self.cuts = self.cuts.behind(start - self.start);
        self.start = start;
    }
}

const _: () = assert!(size_of::<Piece>() <= 48);

/// A time of sending; those of one time are in order of their positions.
//= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
//# RACK_sent_after(t1, seq1, t2, seq2):
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sending {
    /// Nanoseconds.
    pub at: u64,
    /// One past the last position.
    pub end: u64,
}

/// A retransmission that is being watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Resent {
    start: u64,
    end: u64,
    at: u64,
}

/// What a search for losses found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Bytes that count as lost from now on.
    pub lost: u64,
    /// Retransmissions among them.
    pub retransmissions: u32,
    /// Something may have to be counted as lost a little later.
    pub pending: bool,
}

/// The pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scoreboard {
    pieces: VecDeque<Piece>,
    /// Retransmissions that are being watched, once there has been one.
    #[expect(
        clippy::box_collection,
        reason = "most connections have none: one word instead of four"
    )]
    resent: Option<Box<VecDeque<Resent>>>,
    /// Bytes of pieces that are sacked.
    sacked: u64,
    /// Bytes of pieces that are lost.
    lost: u64,
    /// Bytes that were ever found lost.
    lost_ever: u64,
    /// No piece below it is lost.
    first_lost: u64,
    /// What was sent once and lies below it has been judged.
    judged: u64,
}

impl Scoreboard {
    /// Bytes selectively acknowledged.
    pub fn sacked_bytes(&self) -> u64 {
        self.sacked
    }

    /// Bytes that are lost and wait to be sent again.
    pub fn lost_bytes(&self) -> u64 {
        self.lost
    }

    /// Bytes that were ever found lost.
    pub fn lost_ever(&self) -> u64 {
        self.lost_ever
    }

    /// Of so many bytes outstanding, those in the network: less those that arrived and those that
    /// are lost.
    //= https://www.rfc-editor.org/rfc/rfc9937#section-6.2
    //# SACK-enabled connections using RACK-TLP loss detection
    //# [RFC8985] or other loss detection algorithms MUST calculate inflight
    //# by starting with SND.NXT - SND.UNA, subtracting out bytes SACKed in
    //# the scoreboard, subtracting out bytes marked lost in the scoreboard,
    //# and adding bytes in the scoreboard that have been retransmitted since
    //# they were last marked lost.
    pub fn in_flight(&self, outstanding: u64) -> u64 {
        outstanding.saturating_sub(self.sacked).saturating_sub(self.lost)
    }

    /// The first piece.
    pub fn first(&self) -> Option<&Piece> {
        self.pieces.front()
    }

    /// The last piece.
    pub fn last(&self) -> Option<&Piece> {
        self.pieces.back()
    }

    /// Whether `offset` has been selectively acknowledged.
    pub fn is_sacked(&self, offset: u64) -> bool {
        self.pieces.get(self.index_of(offset)).is_some_and(|p| p.fate == Fate::Sacked)
    }

    /// Bytes that were found lost, and those among them that have been sent again.
    pub fn found_lost_bytes(&self) -> u64 {
        let lost = self.pieces.iter().filter(|p| p.lost && p.fate != Fate::Sacked);
        lost.map(Piece::len).sum()
    }

    /// Bytes that have been sent again and have not arrived.
    pub fn resent_bytes(&self) -> u64 {
        let resent = self.pieces.iter().filter(|p| p.again && p.fate == Fate::Sent);
        resent.map(Piece::len).sum()
    }

    /// New data was sent, in segments of `unit` bytes of payload and a last one that may be
    /// smaller.
    pub fn on_sent(&mut self, sent: Range, at: u64, snapshot: Snapshot, unit: u16) {
        let Range { start, end } = sent;
        let (len, cuts) = (end - start, Cuts::of(end - start, unit));
        let is_full = self.pieces.len() >= PIECES_MAX;
        match self.pieces.back_mut() {
            Some(last) if last.fate == Fate::Sent && !last.again && (is_full || last.at == at) => {
                // In a full list it is not known any more where its segments end.
                let joined = last.cuts.joined(last.len(), cuts, len);
                if let Some(cuts) = joined.or(is_full.then_some(Cuts::UNKNOWN)) {
                    (last.cuts, last.end) = (cuts, end);
                    if last.at != at {
                        (last.at, last.snapshot) = (at, snapshot);
                    }
                    return;
                }
            }
            Some(_) => {}
            None => (self.judged, self.first_lost) = (start, u64::MAX),
        }
        let (fate, again, lost) = (Fate::Sent, false, false);
        self.pieces.push_back(Piece { start, end, at, fate, again, lost, cuts, snapshot });
    }

    /// What was sent last, from `start` on, was not sent after all; false where that is not all that is
    /// known of it.
    pub fn take_back(&mut self, start: u64) -> bool {
        let is_it = |p: &&mut Piece| p.fate == Fate::Sent && !p.again && p.start <= start;
        let Some(last) = self.pieces.back_mut().filter(is_it) else { return false };
        if last.start < start {
            last.end = start;
        } else {
            self.pieces.pop_back();
        }
        self.judged = self.judged.min(start);
        true
    }

    /// Data that had been sent was sent again.
    pub fn on_sent_again(&mut self, start: u64, end: u64, at: u64, snapshot: Snapshot) {
        if let Some(joined) = self.join_again(start, end, at, snapshot) {
            self.watch(joined, end, at);
            return;
        }
        let first = self.part(start, PIECES_LIMIT).unwrap_or_else(|whole| whole);
        let past = self.part(end, PIECES_LIMIT).unwrap_or_else(|whole| whole + 1);
        let start = self.pieces.get(first).map_or(start, |p| p.start);
        let end = past.checked_sub(1).and_then(|at| self.pieces.get(at)).map_or(end, |p| p.end);
        for piece in self.pieces.range_mut(first..past) {
            if piece.fate != Fate::Sacked {
                if piece.fate == Fate::Lost {
                    self.lost -= piece.len();
                }
                *piece = Piece { at, fate: Fate::Sent, again: true, snapshot, ..*piece };
            }
        }
        self.join(first.saturating_sub(1), past);
        self.settle_first_lost();
        self.watch(start, end, at);
    }

    /// Where there are many pieces, the beginning of a lost piece that is sent again joins what
    /// was sent again before it; where that begins.
    fn join_again(&mut self, start: u64, end: u64, at: u64, snapshot: Snapshot) -> Option<u64> {
        if self.pieces.len() < PIECES_MAX {
            return None;
        }
        let index = self.index_of(start);
        let piece = *self.pieces.get(index)?;
        let is_part = piece.fate == Fate::Lost && piece.start == start && end < piece.end;
        let before = self.pieces.get_mut(index.checked_sub(1)?)?;
        if !is_part || before.fate != Fate::Sent || !before.again {
            return None;
        }
        (before.end, before.at, before.snapshot) = (end, at, snapshot);
        before.cuts = Cuts::UNKNOWN;
        let joined = before.start;
        self.pieces.get_mut(index)?.begin_at(end);
        self.lost -= end - start;
        self.settle_first_lost();
        Some(joined)
    }

    /// A retransmission is watched for loss; those of one time are in order of their positions.
    fn watch(&mut self, start: u64, end: u64, at: u64) {
        let resent = self.resent.get_or_insert_default();
        match resent.back_mut() {
            Some(last) if last.at == at && (last.start..=last.end).contains(&start) => {
                last.end = last.end.max(end);
            }
            _ => {
                if resent.len() == RESENT_MAX {
                    resent.pop_front();
                }
                let place = resent.partition_point(|r| (r.at, r.start) <= (at, start));
                resent.insert(place, Resent { start, end, at });
            }
        }
    }

    /// Everything below `una` was acknowledged; whether any of it was sent more than once.
    /// `arrived` is called with what had not been sacked before, in order.
    pub fn acknowledge(&mut self, una: u64, mut arrived: impl FnMut(&Piece)) -> bool {
        let mut again = false;
        while let Some(first) = self.pieces.front_mut().filter(|p| p.start < una) {
            let end = first.end.min(una);
            let part = Piece { end, ..*first };
            again |= part.again;
            match part.fate {
                Fate::Sent => {}
                Fate::Lost => self.lost -= part.len(),
                Fate::Sacked => self.sacked -= part.len(),
            }
            if part.fate != Fate::Sacked {
                arrived(&part);
            }
            if end < first.end {
                first.begin_at(end);
            } else {
                self.pieces.pop_front();
            }
        }
        if self.pieces.is_empty() {
            // Back to the beginning of the memory, which is the part that is in the cache.
            self.pieces.clear();
            self.resent = None;
        } else {
            self.settle_first_lost();
        }
        again
    }

    /// A range was selectively acknowledged; false when the list is too full to remember all of
    /// it. `arrived` is called with what is new, in order.
    pub fn sack(&mut self, start: u64, end: u64, mut arrived: impl FnMut(&Piece)) -> bool {
        let (mut start, mut end) = (start, end);
        if let Some(around) = self.sacked_around(start) {
            if around.end >= end {
                return true;
            }
            start = around.start;
        }
        if let Some(around) = self.sacked_around(end.saturating_sub(1)) {
            end = around.end;
        }
        // A part of a segment counts for nothing, as in Linux: it will be sent as a whole.
        if let Some(piece) = self.pieces.get(self.index_of(start)).filter(|p| p.start < start) {
            start = piece.ceil(start);
        }
        if let Some(piece) = self.pieces.get(self.index_of(end)).filter(|p| p.start < end) {
            end = piece.floor(end);
        }
        if start >= end {
            return true;
        }
        let first = self.part(start, PIECES_MAX);
        let past = self.part(end, PIECES_MAX);
        let complete = first.is_ok() && past.is_ok();
        let (first, past) = (first.unwrap_or_else(|at| at + 1), past.unwrap_or_else(|at| at));
        if first >= past {
            return complete;
        }
        for piece in self.pieces.range_mut(first..past) {
            if piece.fate == Fate::Sacked {
                continue;
            }
            if piece.fate == Fate::Lost {
                self.lost -= piece.len();
            }
            self.sacked += piece.len();
            arrived(piece);
            piece.fate = Fate::Sacked;
        }
        self.join(first.saturating_sub(1), past + 1);
        self.settle_first_lost();
        complete
    }

    fn sacked_around(&self, offset: u64) -> Option<Piece> {
        let piece = *self.pieces.get(self.index_of(offset))?;
        (piece.fate == Fate::Sacked && piece.start <= offset).then_some(piece)
    }

    /// What was sent before `newest`, and not after `until`, is lost, unless it has arrived.
    pub fn lose_sent_before(&mut self, newest: Sending, until: u64) -> Found {
        let mut found = Found::default();
        let mut at = self.index_of(self.judged);
        while let Some(piece) = self.pieces.get_mut(at) {
            if piece.fate == Fate::Sent && !piece.again {
                if newest <= (Sending { at: piece.at, end: piece.end }) {
                    break;
                }
                if piece.at > until {
                    found.pending = true;
                    break;
                }
                (piece.fate, piece.lost) = (Fate::Lost, true);
                found.lost += piece.len();
                self.first_lost = self.first_lost.min(piece.start);
            }
            self.judged = piece.end;
            at += 1;
        }
        while let Some(&resent) = self.first_resent().filter(|r| r.at <= newest.at) {
            let watched = self.watched(&resent);
            if resent.at > until {
                if self.pieces.range(watched).any(|p| is_of(p, &resent)) {
                    found.pending = true;
                    break;
                }
            } else {
                let (mut lost, mut left) = (0, false);
                for piece in self.pieces.range_mut(watched).filter(|p| is_of(p, &resent)) {
                    left = newest <= (Sending { at: piece.at, end: piece.end });
                    if left {
                        break;
                    }
                    (piece.fate, piece.lost) = (Fate::Lost, true);
                    lost += piece.len();
                    self.first_lost = self.first_lost.min(piece.start);
                }
                found.lost += lost;
                found.retransmissions += u32::from(lost > 0);
                if left {
                    // What follows was sent at the same time and lies behind it, or later.
                    break;
                }
            }
            if let Some(resent) = &mut self.resent {
                resent.pop_front();
            }
        }
        self.lost += found.lost;
        self.lost_ever += found.lost;
        found
    }

    fn first_resent(&self) -> Option<&Resent> {
        self.resent.as_ref()?.front()
    }

    /// The pieces that a retransmission lies in.
    fn watched(&self, resent: &Resent) -> std::ops::Range<usize> {
        let first = self.index_of(resent.start);
        let past = self.pieces.partition_point(|p| p.start < resent.end);
        first..past.max(first)
    }

    /// A range counts as lost.
    pub fn lose(&mut self, start: u64, end: u64) {
        let first = self.part(start, PIECES_LIMIT).unwrap_or_else(|whole| whole);
        let past = self.part(end, PIECES_LIMIT).unwrap_or_else(|whole| whole + 1);
        for piece in self.pieces.range_mut(first..past) {
            if piece.fate == Fate::Sent {
                (piece.fate, piece.lost) = (Fate::Lost, true);
                self.lost += piece.len();
                self.lost_ever += piece.len();
                self.first_lost = self.first_lost.min(piece.start);
            }
        }
    }

    /// After a timeout: the first piece is lost, and all others that were not sent after `until`.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-6.3
    //# Upon RTO timer expiration, RACK marks the first outstanding segment
    //# as lost (since it was sent an RTO ago); for all the other segments,
    //# RACK only marks the segment as lost if the time elapsed since the
    //# segment was transmitted is at least the sum of the recent RTT and the
    //# reordering window.
    pub fn lose_until(&mut self, until: u64) {
        let mut is_first = true;
        for piece in &mut self.pieces {
            if piece.fate == Fate::Sent && (is_first || piece.at <= until) {
                (piece.fate, piece.lost) = (Fate::Lost, true);
                self.lost += piece.len();
                self.lost_ever += piece.len();
            }
            is_first = false;
        }
        self.judge_anew();
    }

    /// Everything is lost that was sent in segments of more than so many bytes; whether anything was.
    pub fn lose_longer_than(&mut self, bytes: u64) -> bool {
        let before = self.lost_ever;
        for piece in &mut self.pieces {
            if piece.fate == Fate::Sent && piece.cuts.longest(piece.len()) > bytes {
                (piece.fate, piece.lost) = (Fate::Lost, true);
                self.lost += piece.len();
                self.lost_ever += piece.len();
            }
        }
        self.judge_anew();
        self.lost_ever > before
    }

    /// Nothing is lost after all.
    pub fn forgive(&mut self) {
        for piece in &mut self.pieces {
            if piece.fate == Fate::Lost {
                piece.fate = Fate::Sent;
            }
            piece.lost = false;
        }
        self.lost = 0;
        self.judge_anew();
    }

    /// Nothing was selectively acknowledged after all.
    pub fn forget_sacks(&mut self) {
        for piece in &mut self.pieces {
            if piece.fate == Fate::Sacked {
                piece.fate = Fate::Sent;
            }
        }
        self.sacked = 0;
        self.judge_anew();
    }

    fn judge_anew(&mut self) {
        self.judged = self.pieces.front().map_or(0, |p| p.start);
        self.first_lost = self.judged;
        self.settle_first_lost();
        // What had been found lost was not watched any more.
        let again = self.pieces.iter().filter(|p| p.again && p.fate == Fate::Sent);
        let mut resent: VecDeque<Resent> =
            again.map(|p| Resent { start: p.start, end: p.end, at: p.at }).collect();
        resent.make_contiguous().sort_by_key(|resent| resent.at);
        resent.truncate(RESENT_MAX);
        self.resent = (!resent.is_empty()).then(|| Box::new(resent));
    }

    /// The first range to be sent again, at least one segment of it.
    pub fn next_lost(&self) -> Option<Range> {
        if self.lost == 0 {
            return None;
        }
        let at = self.index_of(self.first_lost);
        let mut run = Range { start: 0, end: 0 };
        for piece in self.pieces.range(at..) {
            match piece.fate {
                Fate::Lost if run.len() == 0 => run = Range { start: piece.start, end: piece.end },
                Fate::Lost if run.len() < RUN_MAX => run.end = piece.end,
                _ if run.len() == 0 => {}
                _ => break,
            }
        }
        (run.len() > 0).then_some(run)
    }

    /// Where the frame ends that the byte at `offset` was sent in, if it was one of several segments.
    pub fn frame_end(&self, offset: u64) -> Option<u64> {
        let piece = self.pieces.get(self.index_of(offset))?;
        let frame = piece.cuts.behind(offset.checked_sub(piece.start)?).first_frame()?;
        Some(offset.saturating_add(frame))
    }

    /// Gives memory back while nothing is outstanding.
    pub fn release(&mut self) {
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
            self.resent = None;
        }
    }

    /// Moves `first_lost` to the first piece that is lost.
    fn settle_first_lost(&mut self) {
        if self.lost == 0 {
            self.first_lost = u64::MAX;
            return;
        }
        let at = self.index_of(self.first_lost);
        if let Some(piece) = self.pieces.range(at..).find(|p| p.fate == Fate::Lost) {
            self.first_lost = piece.start;
        }
    }

    /// Index of the first piece that ends after `offset`.
    fn index_of(&self, offset: u64) -> usize {
        match self.pieces.front() {
            Some(first) if offset < first.end => 0,
            _ => self.pieces.partition_point(|p| p.end <= offset),
        }
    }

    /// Parts the piece at `offset`, if need be, so that a piece begins there; its index. `Err` is
    /// the index of the piece that would have to be parted when there are `most` of them or more.
    fn part(&mut self, offset: u64, most: usize) -> Result<usize, usize> {
        let at = self.index_of(offset);
        let is_full = self.pieces.len() >= most;
        match self.pieces.get_mut(at) {
            Some(piece) if piece.start < offset => {
                if is_full {
                    return Err(at);
                }
                let mut rest = *piece;
                rest.begin_at(offset);
                piece.end = offset;
                self.pieces.insert(at + 1, rest);
                Ok(at + 1)
            }
            _ => Ok(at),
        }
    }

    /// Melts pieces from index `first` to before `past` with their neighbours in this range where
    /// their histories are the same; among what is sacked they make no difference.
    fn join(&mut self, first: usize, past: usize) {
        let past = past.min(self.pieces.len());
        let mut kept = first;
        for at in first + 1..past {
            let (Some(&a), Some(&b)) = (self.pieces.get(kept), self.pieces.get(at)) else { break };
            let is_alike = a.at == b.at && a.again == b.again && a.lost == b.lost;
            let cuts = || a.cuts.joined(a.len(), b.cuts, b.len());
            let joined = match (a.fate, b.fate) {
                (Fate::Sacked, Fate::Sacked) => Some(cuts().unwrap_or(Cuts::UNKNOWN)),
                (Fate::Sent, Fate::Sent) if is_alike => cuts(),
                _ => None,
            };
            if let Some(cuts) = joined {
                if let Some(piece) = self.pieces.get_mut(kept) {
                    piece.cuts = cuts;
                    piece.end = b.end;
                    piece.again |= b.again;
                }
            } else {
                kept += 1;
                if let Some(piece) = self.pieces.get_mut(kept) {
                    *piece = b;
                }
            }
        }
        if kept + 1 < past {
            self.pieces.drain(kept + 1..past);
        }
    }
}

fn is_of(piece: &Piece, resent: &Resent) -> bool {
    piece.fate == Fate::Sent && piece.again && piece.at == resent.at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(board: &Scoreboard) -> Vec<(u64, u64, Fate)> {
        board.pieces.iter().map(|p| (p.start, p.end, p.fate)).collect()
    }

    #[test]
    fn a_burst_is_one_piece_until_an_acknowledgement_parts_it() {
        let mut board = Scoreboard::default();
        board.on_sent(Range { start: 0, end: 1000 }, 5, Snapshot::default(), 1);
        board.on_sent(Range { start: 1000, end: 3000 }, 5, Snapshot::default(), 1);
        board.on_sent(Range { start: 3000, end: 4000 }, 6, Snapshot::default(), 1);
        assert_eq!(board.pieces.len(), 2);
        board.sack(1000, 2000, |_| ());
        use Fate::*;
        let all = [(0, 1000, Sent), (1000, 2000, Sacked), (2000, 3000, Sent), (3000, 4000, Sent)];
        assert_eq!(pieces(&board), all);
        board.sack(2000, 3500, |_| ());
        assert_eq!(pieces(&board), [(0, 1000, Sent), (1000, 3500, Sacked), (3500, 4000, Sent)]);
    }

    #[test]
    fn a_full_list_takes_what_is_sent_and_refuses_to_be_parted() {
        let mut board = Scoreboard::default();
        for i in 0..PIECES_MAX as u64 + 100 {
            board.on_sent(Range { start: i * 10, end: i * 10 + 10 }, i, Snapshot::default(), 1);
        }
        assert_eq!(board.pieces.len(), PIECES_MAX);
        assert!(!board.sack(3, 5, |_| ()));
        assert!(board.sack(10, 20, |_| ()));
        assert_eq!(board.sacked_bytes(), 10);
    }

    /// A peer may ask for small segments and have them sent again one at a time, over and over.
    #[test]
    fn retransmissions_of_small_segments_part_no_more_pieces_than_the_limit_allows() {
        const SEGMENT: u64 = 32;
        let mut board = Scoreboard::default();
        let end = PIECES_LIMIT as u64 * SEGMENT * 8;
        board.on_sent(Range { start: 0, end }, 1, Snapshot::default(), 1);
        let mut now = 1;
        for hole in 0..PIECES_MAX as u64 {
            board.sack(hole * 256 + 224, hole * 256 + 256, |_| ());
        }
        for round in 1..40 {
            board.lose_until(now);
            for _ in 0..round * 100 {
                let Some(lost) = board.next_lost() else { break };
                now += 1;
                board.on_sent_again(
                    lost.start,
                    lost.end.min(lost.start + SEGMENT),
                    now,
                    Snapshot::default(),
                );
            }
            assert!(board.pieces.len() <= PIECES_LIMIT);
        }
        let mut sent = 0;
        while let Some(lost) = board.next_lost() {
            now += 1;
            sent += 1;
            board.on_sent_again(
                lost.start,
                lost.end.min(lost.start + SEGMENT),
                now,
                Snapshot::default(),
            );
        }
        assert!(sent > PIECES_MAX && board.lost_bytes() == 0, "{sent}");
        assert!(board.pieces.len() <= PIECES_LIMIT);
        let newest = Sending { at: now + 1, end };
        let outstanding = end - board.sacked_bytes();
        while board.lose_sent_before(newest, now).lost > 0 {}
        assert!(board.lost_bytes() > 0 && board.lost_bytes() <= outstanding);
    }

    #[test]
    fn retransmissions_of_one_time_are_judged_in_the_order_of_their_positions() {
        let mut board = Scoreboard::default();
        board.on_sent(Range { start: 0, end: 8000 }, 1, Snapshot::default(), 1);
        for hole in [1, 3, 5, 7] {
            board.sack(hole * 1000, hole * 1000 + 1000, |_| ());
        }
        board.lose(0, 8000);
        for hole in [4, 2, 6, 0] {
            board.on_sent_again(hole * 1000, hole * 1000 + 1000, 10, Snapshot::default());
        }
        let resent = |board: &Scoreboard| -> Vec<u64> {
            board.resent.iter().flat_map(|resent| resent.iter().map(|r| r.start)).collect()
        };
        assert_eq!(resent(&board), [0, 2000, 4000, 6000]);
        board.sack(4000, 5000, |_| ());
        let found = board.lose_sent_before(Sending { at: 10, end: 5000 }, 100);
        assert_eq!(found, Found { lost: 2000, retransmissions: 2, pending: false });
        assert_eq!(resent(&board).len(), 1);
    }

    #[test]
    fn a_retransmission_is_found_lost_by_what_was_sent_after_it() {
        let mut board = Scoreboard::default();
        board.on_sent(Range { start: 0, end: 4000 }, 1, Snapshot::default(), 1);
        board.sack(1000, 4000, |_| ());
        let newest = Sending { at: 1, end: 4000 };
        assert_eq!(board.lose_sent_before(newest, 1).lost, 1000);
        board.on_sent_again(0, 1000, 10, Snapshot::default());
        assert_eq!(board.lose_sent_before(newest, 100), Found::default());
        board.on_sent(Range { start: 4000, end: 5000 }, 11, Snapshot::default(), 1);
        board.sack(4000, 5000, |_| ());
        let found = board.lose_sent_before(Sending { at: 11, end: 5000 }, 100);
        assert_eq!(found, Found { lost: 1000, retransmissions: 1, pending: false });
    }

    /// The plain way: a history for every byte, and all of them looked at each time.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Byte {
        at: u64,
        again: bool,
        fate: Fate,
    }

    #[derive(Default)]
    struct Naive {
        una: u64,
        bytes: Vec<Byte>,
    }

    impl Naive {
        fn range(&mut self, start: u64, end: u64) -> &mut [Byte] {
            &mut self.bytes[(start - self.una) as usize..(end - self.una) as usize]
        }
        fn count(&self, fate: Fate) -> u64 {
            self.bytes.iter().filter(|b| b.fate == fate).count() as u64
        }
        /// Losses by RFC 8985's letter, of bytes that are segments by themselves.
        fn lose(&mut self, newest: Sending, until: u64) {
            for (i, byte) in self.bytes.iter_mut().enumerate() {
                let sending = Sending { at: byte.at, end: self.una + i as u64 + 1 };
                if byte.fate == Fate::Sent && newest > sending && byte.at <= until {
                    byte.fate = Fate::Lost;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn it_does_what_a_history_of_every_byte_does(
            ops in prop::collection::vec((0u8..10, any::<u16>(), 1u64..30), 1..120),
        ) {
            let mut board = Scoreboard::default();
            let mut naive = Naive::default();
            let mut now = 0;
            let mut newest = Sending::default();
            for (op, random, len) in ops {
                now += u64::from(random % 3 == 0);
                let outstanding = naive.bytes.len() as u64;
                let start = naive.una + u64::from(random) % outstanding.max(1);
                let end = (start + len).min(naive.una + outstanding);
                match op {
                    0 | 1 => {
                        let from = naive.una + outstanding;
                        board.on_sent(Range { start: from, end: from + len }, now, Snapshot::default(), 1);
                        let byte = Byte { at: now, again: false, fate: Fate::Sent };
                        naive.bytes.extend((0..len).map(|_| byte));
                    }
                    2 => {
                        let mut arrived = 0;
                        board.acknowledge(start, |p| arrived += p.len());
                        let gone: Vec<_> = naive.bytes.drain(..(start - naive.una) as usize).collect();
                        naive.una = start;
                        let expected = gone.iter().filter(|b| b.fate != Fate::Sacked).count();
                        prop_assert_eq!(arrived, expected as u64);
                    }
                    3 | 4 if end > start => {
                        let mut sent = Vec::new();
                        board.sack(start, end, |p| {
                            sent.extend((p.start..p.end).map(|at| (at, p.at, p.again)));
                        });
                        let mut expected = Vec::new();
                        for (i, byte) in naive.range(start, end).iter_mut().enumerate() {
                            if byte.fate != Fate::Sacked {
                                expected.push((start + i as u64, byte.at, byte.again));
                                byte.fate = Fate::Sacked;
                            }
                        }
                        for (at, time, _) in &expected {
                            newest = newest.max(Sending { at: *time, end: at + 1 });
                        }
                        prop_assert_eq!(sent, expected);
                    }
                    5 => {
                        let until = now.saturating_sub(u64::from(random % 4));
                        let found = board.lose_sent_before(newest, until);
                        let before = naive.count(Fate::Lost);
                        naive.lose(newest, until);
                        prop_assert_eq!(found.lost, naive.count(Fate::Lost) - before);
                    }
                    6 => if let Some(run) = board.next_lost() {
                        let end = run.end.min(run.start + len);
                        for byte in naive.range(run.start, end) {
                            prop_assert_eq!(byte.fate, Fate::Lost);
                            *byte = Byte { at: now, again: true, fate: Fate::Sent };
                        }
                        board.on_sent_again(run.start, end, now, Snapshot::default());
                    }
                    7 if random % 4 == 0 => {
                        board.forgive();
                        for byte in naive.bytes.iter_mut().filter(|b| b.fate == Fate::Lost) {
                            byte.fate = Fate::Sent;
                        }
                    }
                    8 if random % 4 == 0 => {
                        let until = now.saturating_sub(u64::from(random % 3));
                        let first = board.pieces.front().map_or(0, |p| p.end - p.start);
                        board.lose_until(until);
                        for (i, byte) in (0..).zip(&mut naive.bytes) {
                            if byte.fate == Fate::Sent && (i < first || byte.at <= until) {
                                byte.fate = Fate::Lost;
                            }
                        }
                    }
                    9 => {
                        board.lose(start, end);
                        for byte in naive.range(start, end) {
                            if byte.fate == Fate::Sent {
                                byte.fate = Fate::Lost;
                            }
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(board.sacked_bytes(), naive.count(Fate::Sacked));
                prop_assert_eq!(board.lost_bytes(), naive.count(Fate::Lost));
                let outstanding = naive.bytes.len() as u64;
                prop_assert_eq!(board.in_flight(outstanding), naive.count(Fate::Sent));
                let first_lost = naive.bytes.iter().position(|b| b.fate == Fate::Lost);
                let first_lost = first_lost.map(|i| naive.una + i as u64);
                prop_assert_eq!(board.next_lost().map(|r| r.start), first_lost);
                let mut at = naive.una;
                for piece in &board.pieces {
                    prop_assert_eq!(piece.start, at);
                    prop_assert!(piece.end > at);
                    at = piece.end;
                }
                prop_assert_eq!(at, naive.una + naive.bytes.len() as u64);
            }
        }
    }
}
