//! A port that the engine shares with the kernel frame by frame: the kernel has an interface with
//! the port's link address, addresses and routes are the kernel's, and the engine takes what it has
//! claimed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;

use super::claims::{Claims, Owner};
use super::deliver::deliver;
use super::{KernelFds, ReservedPorts};
use crate::forward::{Forwarder, Reach};
use crate::interface::{
    Claim, LinkState, Port, PortCounters, PortInfo, RxBurst, RxHandle, Shared, TxError, TxMeta,
};
use crate::open::OpenError;
use crate::tap::TapPort;

/// Maximum time between two polls of an interface on which programs have recently sent nothing; the
/// first poll after a frame comes after a sixteenth of that. Each poll is a system call.
const LOOK_NS_MAX: u64 = 16_000;
const LOOK_NS_MIN: u64 = 1_000;
/// Pause before frames are retried for which the port had no room.
const RETRY_NS: u64 = 50_000;

/// The shared port; see the module.
pub struct NicPort {
    inner: Box<dyn Port>,
    info: PortInfo,
    tap: TapPort,
    claims: Claims,
    forwarder: Forwarder,
    /// Frames sent by programs, and how many of them were forwarded.
    outbound: RxBurst,
    gone: usize,
    /// Readable when the port or the interface has frames.
    waiting: Option<OwnedFd>,
    now_ns: u64,
    next_look_ns: u64,
    look_ns: u64,
    counters: PortCounters,
    _reserved: Vec<OwnedFd>,
}

impl NicPort {
    /// Adds the kernel's interface to a port.
    ///
    /// # Errors
    /// If no descriptor is left to wait with.
    pub fn new(
        inner: Box<dyn Port>,
        fds: KernelFds,
        reserved: ReservedPorts,
    ) -> Result<Self, OpenError> {
        let KernelFds { device, facts } = fds;
        let reserved = reserved.0;
        let failed = |why: io::Error| {
            OpenError::system(&facts.label, "wait for frames", "a free descriptor", &why)
        };
        let waiting = inner.wait_fd().map(|fd| both(fd, device.as_fd())).transpose();
        let waiting = waiting.map_err(failed)?;
        let shared = Shared {
            interface_index: facts.index,
            connect_ports: reserved.ports,
            is_divided: true,
        };
        let kernel_index = facts.index;
        let info = PortInfo { shared: Some(shared), kernel_index, ..inner.info().clone() };
        Ok(Self {
            inner,
            info,
            tap: TapPort::of_kernel(device, &facts)?,
            claims: Claims::new(reserved.ports),
            forwarder: Forwarder::default(),
            outbound: RxBurst::new(),
            gone: 0,
            waiting,
            now_ns: 0,
            next_look_ns: 0,
            look_ns: LOOK_NS_MIN,
            counters: PortCounters::default(),
            _reserved: reserved.sockets,
        })
    }

    fn give_kernel(&mut self, handle: RxHandle) {
        match deliver(&mut self.tap, &self.inner.frame(handle), true) {
            Ok(()) => self.counters.kernel_rx_frames += 1,
            Err(_) => self.counters.kernel_rx_dropped += 1,
        }
    }

    /// Sends the frames that were read; `false`: the port has no room for the next one.
    fn send_outbound(&mut self, sees: &mut dyn FnMut(&TxMeta, &[u8])) -> bool {
        let to = Reach::of(self.inner.info());
        while let Some(handle) = self.outbound.handles.get(self.gone) {
            let frame = self.tap.frame(*handle);
            let inner = &mut self.inner;
            let mut pieces = 0;
            let sent = self.forwarder.forward(to, &frame, |meta, bytes| {
                inner.send(meta, bytes, &[])?;
                pieces += 1;
                sees(meta, bytes);
                Ok(())
            });
            match sent {
                Ok(()) => self.counters.kernel_tx_frames += 1,
                // A frame that was sent in part is not sent again.
                Err(TxError::Full) if pieces == 0 => return false,
                Err(_) => self.counters.kernel_tx_dropped += 1,
            }
            self.gone += 1;
        }
        self.tap.release(&mut self.outbound);
        self.gone = 0;
        true
    }
}

fn both(first: BorrowedFd<'_>, second: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in [first, second] {
        epoll::add(&all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(all)
}

impl crate::PortWrapper for NicPort {
    type Inner = dyn Port;

    fn inner(&self) -> &Self::Inner {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        &mut *self.inner
    }

    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        let waiting =
            self.waiting.as_ref().filter(|_| !self.inner().is_gone() && !self.tap.is_gone());
        waiting.map(AsFd::as_fd).or_else(|| self.inner().wait_fd())
    }

    fn counters(&self) -> PortCounters {
        let PortCounters {
            kernel_rx_frames,
            kernel_rx_dropped,
            kernel_tx_frames,
            kernel_tx_dropped,
            ..
        } = self.counters;
        PortCounters {
            kernel_rx_frames,
            kernel_rx_dropped,
            kernel_tx_frames,
            kernel_tx_dropped,
            ..self.inner().counters()
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        let waits = !self.outbound.handles.is_empty();
        let again = waits.then(|| self.now_ns.saturating_add(RETRY_NS));
        again.into_iter().chain(self.inner().next_deadline()).min()
    }

    fn on_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.inner_mut().on_time(now_ns);
    }

    fn divide(
        &mut self,
        burst: &RxBurst,
        taken: u64,
        awaits: &dyn Fn(SocketAddr, SocketAddr) -> bool,
    ) -> u64 {
        let mut left = taken;
        for (position, handle) in burst.handles.iter().enumerate() {
            if taken >> position & 1 != 0 {
                continue;
            }
            let owner = self.claims.owner((*self.inner).frame(*handle).bytes, awaits);
            if owner != Owner::Engine {
                self.give_kernel(*handle);
            }
            if owner == Owner::Kernel {
                left |= 1 << position;
            }
        }
        left
    }

    fn relay(&mut self, sees: &mut dyn FnMut(&TxMeta, &[u8])) -> usize {
        if !self.outbound.handles.is_empty() && !self.send_outbound(sees) {
            return 0;
        }
        if self.now_ns < self.next_look_ns {
            return 0;
        }
        self.tap.receive(&mut self.outbound);
        let count = self.outbound.handles.len();
        if count == 0 {
            self.look_ns = (self.look_ns * 2).min(LOOK_NS_MAX);
            self.next_look_ns = self.now_ns.saturating_add(self.look_ns);
            return 0;
        }
        self.look_ns = LOOK_NS_MIN / 2;
        self.next_look_ns = self.now_ns;
        self.send_outbound(sees);
        count
    }

    fn claim(&mut self, claim: &Claim) -> io::Result<()> {
        self.claims.claim(claim);
        Ok(())
    }

    fn release_claim(&mut self, claim: &Claim) {
        self.claims.release(claim);
    }

    fn follow(&mut self, addresses: &[IpAddr], mtu: u16) -> io::Result<()> {
        self.info.mtu = mtu.min(self.inner().info().mtu);
        self.claims.follow(addresses);
        Ok(())
    }

    fn follow_link(&mut self, _link: &LinkState) -> io::Result<()> {
        Ok(())
    }
}
