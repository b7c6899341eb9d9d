//! A port whose sent frames are watched.

use arch::SharedBytes;
use port::{Port, TxError, TxFrame, TxMeta};

use super::RawTable;

/// The watchers of a port's sent frames.
pub struct Watch<'a> {
    /// All raw endpoints.
    pub raw: &'a mut RawTable,
    /// The port's number.
    pub number: usize,
    /// The time, in engine nanoseconds.
    pub now_ns: u64,
}

impl<'a> Watch<'a> {
    /// A watch of a port's frames, if it has watchers.
    pub fn of(raw: &'a mut RawTable, number: usize, now_ns: u64) -> Option<Self> {
        raw.sees_sent(number).then_some(Self { raw, number, now_ns })
    }
}

/// How a frame is sent.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// The number of its port.
    pub number: usize,
    /// The endpoint that sends it, which does not see it itself.
    pub except: Option<u32>,
    /// The time, in engine nanoseconds.
    pub now_ns: u64,
}

/// The port around which a watch is put for the length of a burst.
pub struct Watched<'a> {
    /// The port.
    pub port: &'a mut dyn Port,
    /// Its watchers.
    pub watch: Watch<'a>,
}

impl<'a> port::PortWrapper for Watched<'a> {
    type Inner = dyn Port + 'a;

    fn inner(&self) -> &Self::Inner {
        &*self.port
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        &mut *self.port
    }

    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        let Watch { raw, number, now_ns } = &mut self.watch;
        let sending = Sending { number: *number, except: None, now_ns: *now_ns };
        raw.send(self.port, sending, &TxFrame { meta, header, payload })
    }
}
