//! The modes in which a driver may serve AF_XDP, best first, and the choice of those to try.

use serde::{Deserialize, Serialize};

use super::drivers;

/// How frames get from the card to the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum XdpMode {
    /// The program runs in the driver, which puts frames into our memory itself if it can, and
    /// otherwise copies them.
    ZeroCopy,
    /// The program runs in the driver, and the kernel copies frames.
    Copy,
    /// The program runs in front of the kernel's stack, and the kernel copies frames.
    Generic,
}

impl XdpMode {
    const ALL: [XdpMode; 3] = [XdpMode::ZeroCopy, XdpMode::Copy, XdpMode::Generic];

    /// The word after `mode=`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            XdpMode::ZeroCopy => "zero-copy",
            XdpMode::Copy => "copy",
            XdpMode::Generic => "generic",
        }
    }

    /// The mode called `word`.
    pub(crate) fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }

    /// Its name in a sentence.
    pub(crate) fn words(self) -> &'static str {
        match self {
            XdpMode::ZeroCopy => "in native mode without copies",
            XdpMode::Copy => "in native mode with copies",
            XdpMode::Generic => "in generic mode",
        }
    }
}

/// The modes to try, in order, and a note about them: the requested mode and those below it, or all
/// without a known fault of the driver.
pub(super) fn to_try(
    asked: Option<XdpMode>,
    driver: Option<&str>,
    kernel: (u32, u32),
    several_buffers: bool,
) -> (Vec<XdpMode>, Option<String>) {
    let known = driver.and_then(|driver| drivers::known(driver, kernel));
    // A program in veth's driver disables the peer's segmentation offload, which costs bulk more
    // than it saves per frame (docs/port.md). Large frames arrive in several buffers.
    let usual = match driver {
        Some("veth") if several_buffers => XdpMode::Generic,
        _ => XdpMode::ZeroCopy,
    };
    let best = asked.or(known.map(|known| known.best())).unwrap_or(usual);
    let modes = XdpMode::ALL.into_iter().skip_while(|mode| *mode != best).collect();
    (modes, known.map(|known| known.sentence()))
}

/// Tries the modes in turn. Each failure adds a note; the last one's error is returned.
pub(super) fn first_that_works<T, E: std::fmt::Display>(
    label: &str,
    modes: &[XdpMode],
    notes: &mut Vec<String>,
    mut attempt: impl FnMut(XdpMode) -> Result<T, Attempt<E>>,
) -> Result<T, E> {
    let mut left = modes.iter().copied();
    let mut mode = left.next().unwrap_or(XdpMode::Generic);
    loop {
        let why = match attempt(mode) {
            Ok(done) => return Ok(done),
            Err(Attempt::Hopeless(why)) => return Err(why),
            Err(Attempt::Failed(why)) => why,
        };
        let Some(next) = left.next() else { return Err(why) };
        notes.push(format!(
            "{label} does not work {}; trying {}: {why}",
            mode.words(),
            next.words()
        ));
        mode = next;
    }
}

/// Outcome of a failed attempt.
pub(super) enum Attempt<E> {
    /// Another mode may work.
    Failed(E),
    /// None will.
    Hopeless(E),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_is_known_to_misbehave_is_used_in_another_way_unless_asked() {
        let (modes, said) = to_try(None, Some("ena"), (6, 8), true);
        assert_eq!(modes, [XdpMode::Copy, XdpMode::Generic]);
        assert!(said.unwrap().contains("ena"));
        assert_eq!(to_try(Some(XdpMode::ZeroCopy), Some("ena"), (6, 8), true).0.len(), 3);
        assert_eq!(to_try(Some(XdpMode::Generic), None, (6, 8), true).0, [XdpMode::Generic]);
        assert_eq!(to_try(None, Some("virtio_net"), (6, 8), true), (XdpMode::ALL.to_vec(), None));
    }

    #[test]
    fn over_veth_frames_come_uncut_where_they_can() {
        assert_eq!(to_try(None, Some("veth"), (6, 8), true), (vec![XdpMode::Generic], None));
        assert_eq!(to_try(None, Some("veth"), (6, 1), false), (XdpMode::ALL.to_vec(), None));
        assert_eq!(to_try(Some(XdpMode::ZeroCopy), Some("veth"), (6, 8), true).0, XdpMode::ALL);
    }

    #[test]
    fn a_way_that_fails_is_given_up_by_name_for_the_next() {
        let mut notes = Vec::new();
        let found = first_that_works("xdp:a", &XdpMode::ALL, &mut notes, |mode| match mode {
            XdpMode::Generic => Ok(mode),
            _ => Err(Attempt::Failed("no frame came through")),
        });
        assert_eq!(found, Ok(XdpMode::Generic));
        assert_eq!(notes.len(), 2);
        assert!(notes[1].contains("xdp:a") && notes[1].contains("in generic mode"), "{notes:?}");
        assert!(notes[1].contains("no frame came through"), "{notes:?}");
        let mut tried = 0;
        let failed = first_that_works("xdp:a", &XdpMode::ALL, &mut notes, |_| {
            tried += 1;
            Err::<(), _>(Attempt::Hopeless("somebody else's"))
        });
        assert_eq!((failed, tried), (Err("somebody else's"), 1));
        let failed = first_that_works("xdp:a", &[XdpMode::Generic], &mut notes, |_| {
            Err::<(), _>(Attempt::Failed("nothing works"))
        });
        assert_eq!(failed, Err("nothing works"));
    }
}
