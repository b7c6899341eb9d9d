//! UDP sockets: a kernel socket and an engine endpoint under one number. Sending depends on the
//! destination, receiving takes from both.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shm::census::Kind;

use super::ancillary::{Arrival, Control, Wishes};
use super::calls::SocketCall;
use super::groups::way_to_group;
use super::link::{Attachment, Deadline};
use super::marks::Switches;
use super::poll::WaitEnds;
use super::socket::{Datagram, IN_BITS, OUT_BITS, Socket, held, is_kernels, plain, timeout};
use super::times::{ask_about, put_arrival, put_sent, put_told};
use super::transfer::{SendMessage, may_wait};
use super::{Era, Errno, Kernel, Received, Sockets, Verdict};
use crate::datagram::payload_max;
use crate::{DatagramFlags, Endpoint, ErrorReceived, ErrorReport, Outgoing, Session};

impl Sockets {
    /// The socket's endpoint in the engine, created if the engine reaches `to`. The kernel's side
    /// is bound to a free port if it is not bound.
    fn face(
        &'static self,
        era: &Era,
        socket: &Arc<Socket>,
        fd: RawFd,
        (to, scope): (SocketAddr, u32),
    ) -> Option<(Arc<Endpoint>, Arc<Attachment>)> {
        let face = self.face_towards(era, socket, fd, (to, scope));
        if face.is_none() && !Self::is_counted(socket) {
            let reason = self.why_not(era, era.link.current().as_deref(), to.ip());
            self.count_socket(era, socket, (Kind::UdpSending, Some(to)), Some(reason));
        }
        face
    }

    fn face_towards(
        &'static self,
        era: &Era,
        socket: &Arc<Socket>,
        fd: RawFd,
        (peer, scope): (SocketAddr, u32),
    ) -> Option<(Arc<Endpoint>, Arc<Attachment>)> {
        let to = peer.ip();
        let speaks = |face: &Datagram| !(face.v6_only && to.is_ipv4());
        let present = || socket.face().filter(speaks).map(|face| (face.endpoint, face.attachment));
        if is_kernels(to) || to.is_unspecified() {
            return None;
        }
        let serves = |attachment: &Attachment| match to.is_multicast() {
            true => way_to_group(socket, attachment, to, scope).is_some(),
            false => attachment.serves(to),
        };
        if let Some(face) = present().filter(|(_, attachment)| !attachment.is_lost()) {
            return serves(&face.1).then_some(face);
        }
        let attachment = self.attach(era).filter(|attachment| serves(attachment))?;
        self.bind_to_port(fd).ok()?;
        self.show(era, socket, &attachment);
        let made = present();
        if made.is_some() && !socket.bound.load(Ordering::Relaxed) {
            self.count_socket(era, socket, (Kind::UdpSending, Some(peer)), None);
        }
        made
    }

    /// Closes the engine's side of a UDP socket.
    pub(super) fn close_face(&self, socket: &Socket) {
        let present = held(socket.datagram.write()).take();
        if let Some(Datagram { endpoint, attachment, .. }) = present {
            attachment.forget(endpoint.id());
            endpoint.close();
            // Threads that wait only for the engine wait for the kernel from now on.
            socket.notify(self.kernel);
        }
    }

    /// connect(2) on a UDP socket.
    pub(super) fn connect_datagram(
        &'static self,
        era: &Era,
        socket: &Arc<Socket>,
        fd: RawFd,
        to: Option<SocketAddr>,
    ) -> Verdict<()> {
        let Some(to) = to else { return Verdict::Done(self.loosen(era, socket, fd)) };
        let (named, to, scope) = (to, plain(to), scope_of(to));
        if self.is_out_of_reach(socket, fd, to.ip()) {
            return Verdict::Kernel;
        }
        let to = self.resolved(socket, fd, to);
        let mut before = None;
        if socket.face().is_none() {
            // A peer of the kernel's excludes the engine; the next one may be the engine's.
            before = held(socket.peer.lock()).take();
        }
        let Some((endpoint, attachment)) = self.face(era, socket, fd, (to, scope)) else {
            return self.connect_in_kernel(SocketCall { era, socket, fd }, named, before);
        };
        if let Some(error) = socket.versions.refusal(to.ip()) {
            return Verdict::Done(Err(error));
        }
        if !may_broadcast(socket, &attachment, to.ip()) {
            return Verdict::Done(Err(Errno::ACCESS));
        }
        if let Err(error) = endpoint.set_peer(Some(to))
            && attachment.session.is_alive()
        {
            return Verdict::Done(Err(error));
        }
        // So that the kernel's side delivers nothing from other peers, and takes over when the
        // engine ends; it may have no route, which does not matter.
        let peer = self.kernel.connect(fd, socket.dressed(to)).ok().map(|()| to);
        *held(socket.peer.lock()) = peer;
        let mut datagram = held(socket.datagram.write());
        if let Some(datagram) = datagram.as_mut() {
            datagram.peer = Some(to);
        }
        // It may have ended since.
        datagram.take_if(|datagram| socket.is_left_behind(datagram));
        if socket.v6 {
            socket.versions.on_connect(to.ip());
        }
        Verdict::Done(Ok(()))
    }

    /// connect(2) to a peer that only the kernel reaches; on failure the previous peer stays.
    fn connect_in_kernel(
        &'static self,
        SocketCall { era, socket, fd }: SocketCall<'_>,
        to: SocketAddr,
        before: Option<SocketAddr>,
    ) -> Verdict<()> {
        if !socket.bound.load(Ordering::Relaxed) {
            *held(socket.peer.lock()) = None;
            self.close_face(socket);
            self.give_to_kernel(era, socket);
            era.link.forget(socket);
            return Verdict::Kernel;
        }
        // Once disconnected, it receives from all peers again.
        let outcome = self.kernel.connect(fd, to);
        if outcome.is_ok() {
            if socket.v6 {
                socket.versions.on_connect(plain(to).ip());
            }
            self.close_face(socket);
            let reason = self.why_not(era, era.link.current().as_deref(), plain(to).ip());
            self.recount(era, socket, Some(reason));
            *held(socket.peer.lock()) = Some(plain(to));
        } else if before.is_some() {
            *held(socket.peer.lock()) = before;
        }
        Verdict::Done(outcome)
    }

    /// connect(2) with AF_UNSPEC. As in the kernel, a socket that was bound to a port keeps it and
    /// its queue, and receives from all peers again; any other has no port until it sends.
    fn loosen(&'static self, era: &Era, socket: &Arc<Socket>, fd: RawFd) -> Result<(), Errno> {
        self.kernel.disconnect(fd)?;
        socket.versions.on_disconnect();
        *held(socket.peer.lock()) = None;
        let keeps_port = self.kernel.local(fd).is_ok_and(|local| local.port() != 0);
        if keeps_port && socket.face().is_some_and(|face| face.endpoint.set_peer(None).is_ok()) {
            if let Some(datagram) = held(socket.datagram.write()).as_mut() {
                datagram.peer = None;
            }
            socket.notify(self.kernel);
            return Ok(());
        }
        self.close_face(socket);
        if keeps_port && let Some(attachment) = self.attach(era) {
            // It had a peer of the kernel's, or of an engine that has ended.
            self.show(era, socket, &attachment);
        }
        Ok(())
    }

    pub(super) fn send_datagram(
        &'static self,
        call: SocketCall<'_>,
        message: &SendMessage<'_>,
    ) -> Verdict<usize> {
        let SocketCall { era, socket, fd } = call;
        let SendMessage { bufs, control, flags, to } = *message;
        if flags & libc::MSG_OOB != 0 {
            // The kernel refuses that before it checks the destination.
            return Verdict::Kernel;
        }
        if let Some(error) = socket.take_late_error() {
            return Verdict::Done(Err(error));
        }
        if let Some(outcome) = self.send_piece(call, bufs, flags) {
            return Verdict::Done(outcome);
        }
        let scope = to.map_or(0, scope_of);
        let to = to.map(|to| self.resolved(socket, fd, plain(to)));
        let face = match to {
            Some(to) => self.face(era, socket, fd, (to, scope)).map(|face| (face, to)),
            None => {
                socket.face().and_then(|face| Some(((face.endpoint, face.attachment), face.peer?)))
            }
        };
        let Some(((endpoint, attachment), peer)) = face else { return Verdict::Kernel };
        // A peer was checked when it was connected.
        if let Some(error) = to.and_then(|to| socket.versions.refusal(to.ip())) {
            return Verdict::Done(Err(error));
        }
        if to.is_some_and(|to| !may_broadcast(socket, &attachment, to.ip())) {
            return Verdict::Done(Err(Errno::ACCESS));
        }
        let len = bufs.iter().map(|buf| buf.len()).sum();
        let asked = said_of(socket, &attachment, control, (peer, scope), len);
        let (mut outgoing, counts) = match asked {
            Ok(Way::Ours { outgoing, counts }) => (Outgoing { remote: to, ..outgoing }, counts),
            // The kernel's side has no such peer.
            Ok(Way::Kernels(errno)) if to.is_none() => return Verdict::Done(Err(errno)),
            Ok(Way::Kernels(_)) => return Verdict::Kernel,
            Err(error) => {
                // The kernel checks the length limit of IPv4 before everything else.
                let is_told = peer.is_ipv6() || len <= usize::from(u16::MAX);
                if error == Errno::MSGSIZE && is_told {
                    report_too_long(socket, &endpoint, &attachment, peer);
                }
                return Verdict::Done(Err(error));
            }
        };
        if counts {
            let count = &socket.streams.count_from;
            outgoing.number = count.fetch_add(1, Ordering::Relaxed) as u32;
        }
        let outbound = Outbound { endpoint, attachment, peer, outgoing, counts };
        if socket.cork.holds_back(flags) {
            let number = outbound.counts;
            let begun = self.begin_pieces(socket, outbound, bufs);
            if begun.is_err() && number {
                give_number_back(socket);
            }
            return Verdict::Done(begun);
        }
        self.transmit(call, &outbound, bufs, may_wait(socket, flags))
    }

    /// Sends a datagram; waits for room if the program may `wait`.
    pub(super) fn transmit(
        &'static self,
        SocketCall { era, socket, .. }: SocketCall<'_>,
        outbound: &Outbound,
        bufs: &[IoSlice<'_>],
        wait: bool,
    ) -> Verdict<usize> {
        let deadline = Deadline::after(self.kernel, timeout(&socket.send_timeout_ns));
        let sent = loop {
            if socket.shut.is_written() {
                break Verdict::Done(Err(Errno::PIPE));
            }
            match outbound.endpoint.send_datagram(&outbound.outgoing, bufs) {
                Err(Errno::AGAIN) if wait => {
                    // Waits only for room and errors, although other events may be reported.
                    let is_ready = || {
                        !outbound.is_live(socket)
                            || socket.shut.is_written()
                            || socket.engine_bits(OUT_BITS) & ROOM != 0
                    };
                    let ends = WaitEnds::within(deadline.left());
                    if let Err(error) = self.block_until(era, socket, &is_ready, ends) {
                        break Verdict::Done(Err(error));
                    }
                    if let Some(error) = socket.take_late_error() {
                        break Verdict::Done(Err(error));
                    }
                }
                Err(_) if !outbound.is_live(socket) => break Verdict::Kernel,
                outcome => break Verdict::Done(outcome),
            }
        };
        if outbound.counts && !matches!(sent, Verdict::Done(Ok(_))) {
            give_number_back(socket);
        }
        sent
    }

    /// recvmsg(2) with MSG_ERRQUEUE on a UDP socket; never waits.
    fn receive_error(
        &self,
        socket: &Socket,
        bufs: &mut [IoSliceMut<'_>],
        control: &mut [u8],
    ) -> Verdict<Received> {
        let Some(Datagram { endpoint, attachment, .. }) = socket.face() else {
            return Verdict::Kernel;
        };
        let Ok((error, copied)) = endpoint.recv_error(bufs) else { return Verdict::Kernel };
        let mut out = Control::new(control);
        put_told(socket, error.at_ns, self.kernel, &mut out);
        let is_of_sent = error.report.is_of_sent();
        if is_of_sent {
            put_sent(socket, &attachment.session, &error, &mut out);
        } else if error.report.offender.is_some() {
            let arrival = Arrival {
                local: error.local,
                // For errors the kernel gives no local address.
                own: Ipv4Addr::UNSPECIFIED.into(),
                tos: error.tos,
                ttl: error.ttl,
                interface: index_of_arrival(&attachment.session, error.interface, error.local.ip()),
                segment_bytes: 0,
            };
            out.put_arrival(socket.marks.on(), socket.v6, &arrival);
        }
        if !is_of_sent {
            out.put_error(socket.v6, &error);
        }
        let cut = if copied < error.payload.len() { libc::MSG_TRUNC } else { 0 };
        Verdict::Done(Ok(Received {
            len: copied,
            from: (!is_of_sent).then(|| socket.dressed(error.remote)),
            flags: libc::MSG_ERRQUEUE | out.flags | cut,
            control_len: out.len,
        }))
    }

    pub(super) fn receive_datagram(
        &'static self,
        SocketCall { era, socket, fd }: SocketCall<'_>,
        bufs: &mut [IoSliceMut<'_>],
        control: &mut [u8],
        flags: i32,
    ) -> Verdict<Received> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            // If the engine has none, the kernel's queue may.
            return self.receive_error(socket, bufs, control);
        }
        let wait = may_wait(socket, flags);
        let deadline = Deadline::after(self.kernel, timeout(&socket.receive_timeout_ns));
        loop {
            // A call of another thread may set one while this one waits.
            if let Some(error) = socket.take_late_error() {
                return Verdict::Done(Err(error));
            }
            let face = socket.face();
            // If the kernel does not have the peer, its side receives nothing. Otherwise data that
            // arrived before the engine's endpoint may still be there.
            let alone = face.as_ref().is_some_and(|face| face.peer.is_some())
                && held(socket.peer.lock()).is_none();
            let got = match &face {
                Some(face) if flags & libc::MSG_PEEK != 0 => face.endpoint.peek_from(bufs),
                Some(face) => face.endpoint.recv_from(bufs),
                // The wait is here, because the socket may get an engine endpoint meanwhile: by a
                // send of another thread, or because an engine starts.
                None if wait => Err(Errno::AGAIN),
                None => return Verdict::Kernel,
            };
            match got {
                Ok(got) => {
                    let whole = flags & libc::MSG_TRUNC != 0;
                    let session = face.as_ref().map(|face| &face.attachment.session);
                    let (control_len, cut) = said_with(socket, &got, session, self.kernel, control);
                    let longer = if got.full_len > got.len { libc::MSG_TRUNC } else { 0 };
                    return Verdict::Done(Ok(Received {
                        len: if whole { got.full_len } else { got.len },
                        from: Some(socket.dressed(got.remote)),
                        flags: longer | cut,
                        control_len,
                    }));
                }
                Err(Errno::AGAIN) => (),
                // The engine has just ended.
                Err(_) if face.as_ref().is_some_and(|face| socket.is_left_behind(face)) => continue,
                Err(error) => return Verdict::Done(Err(error)),
            }
            if !alone {
                // The program may have closed its number meanwhile.
                let fd = socket.number().unwrap_or(fd);
                match self.kernel.receive(fd, bufs, control, flags | libc::MSG_DONTWAIT) {
                    Err(Errno::AGAIN) => (),
                    outcome => {
                        socket.streams.last.leave_to_kernel();
                        return Verdict::Done(outcome);
                    }
                }
            }
            if !wait {
                return Verdict::Done(Err(Errno::AGAIN));
            }
            if socket.shut.is_read() {
                return Verdict::Done(Ok(Received::default()));
            }
            let ends = WaitEnds {
                kernel_events: if alone { 0 } else { libc::POLLIN },
                timeout: deadline.left(),
            };
            // Another thread may give it a peer of the kernel's, or none, whom nobody would hear here.
            let is_alone = || socket.face().is_some_and(|face| face.peer.is_some());
            let is_ready = || {
                socket.shut.is_read()
                    || socket.engine_bits(WAKES) & WAKES != 0
                    || alone && !is_alone()
            };
            if let Err(error) = self.block_until(era, socket, &is_ready, ends) {
                return Verdict::Done(Err(error));
            }
        }
    }
}

/// Adds the control messages requested by the socket's options.
fn said_with(
    socket: &Socket,
    got: &crate::ReceivedDatagram,
    session: Option<&Arc<Session>>,
    kernel: &dyn Kernel,
    control: &mut [u8],
) -> (usize, i32) {
    let on = socket.marks.on();
    let mut out = Control::new(control);
    put_arrival(socket, got.at_ns, kernel, &mut out);
    if let Some(session) = session.filter(|_| on.asks_for_messages()) {
        // A reply to a broadcast comes from the interface's address.
        let to_all = on.contains(Switches::PKTINFO) && !session.owns(got.local.ip());
        let own = if to_all { session.address_on(got.interface) } else { None };
        let arrival = Arrival {
            local: got.local,
            own: own.unwrap_or(got.local.ip()),
            tos: got.tos,
            ttl: got.ttl,
            interface: index_of_arrival(session, got.interface, got.local.ip()),
            segment_bytes: got.segment_bytes,
        };
        out.put_arrival(on, socket.v6, &arrival);
    }
    (out.len, out.flags)
}

/// The kernel's index of the receiving interface. For local traffic it is the interface that has
/// the destination address.
fn index_of_arrival(session: &Session, interface: u32, local: IpAddr) -> u32 {
    match interface {
        0 => session.index_of_owner(local),
        interface => session.kernel_index(interface),
    }
}

/// Events that end a wait for room.
const ROOM: u32 = OUT_BITS | libc::POLLERR as u32;

/// Events that end a wait for a datagram.
const WAKES: u32 = IN_BITS | (libc::POLLERR | libc::POLLHUP) as u32;

/// Whether a socket may send to an address: broadcast needs SO_BROADCAST.
fn may_broadcast(socket: &Socket, attachment: &Attachment, to: IpAddr) -> bool {
    socket.marks.on().contains(Switches::BROADCAST) || !attachment.session.is_broadcast(to)
}

/// An unsent datagram uses no number, as in the kernel.
fn give_number_back(socket: &Socket) {
    socket.streams.count_from.fetch_sub(1, Ordering::Relaxed);
}

/// A datagram to be sent through the engine, and its parameters.
#[derive(Debug)]
pub(super) struct Outbound {
    pub endpoint: Arc<Endpoint>,
    attachment: Arc<Attachment>,
    pub peer: SocketAddr,
    outgoing: Outgoing,
    /// It has a number in the socket's count.
    counts: bool,
}

impl Outbound {
    /// Whether the socket still belongs to the engine for which this was meant.
    fn is_live(&self, socket: &Socket) -> bool {
        socket.face().is_some_and(|face| Arc::ptr_eq(&face.endpoint, &self.endpoint))
    }

    /// Whether a datagram of this length may be sent; a socket with IP_RECVERR gets a report if
    /// not.
    pub fn admits(&self, socket: &Socket, len: usize) -> Result<(), Errno> {
        fits(&self.outgoing, &self.attachment.session, self.peer.ip(), len).inspect_err(|error| {
            if *error == Errno::MSGSIZE {
                report_too_long(socket, &self.endpoint, &self.attachment, self.peer);
            }
        })
    }
}

/// Where the program's parameters direct a datagram.
enum Way {
    Ours {
        outgoing: Outgoing,
        /// It has a number in the socket's count.
        counts: bool,
    },
    /// Through an interface or from an address that the engine does not have. The errno of the
    /// kernel applies if the kernel does not have it either.
    Kernels(Errno),
}

/// The parameters of a datagram to `peer`, from the socket and the program.
fn said_of(
    socket: &Socket,
    attachment: &Attachment,
    control: &[u8],
    (peer, scope): (SocketAddr, u32),
    len: usize,
) -> Result<Way, Errno> {
    let (marks, to, session) = (&socket.marks, peer.ip(), &attachment.session);
    let mut outgoing = Outgoing {
        tos: marks.tos(to),
        ttl: marks.ttl(to).unwrap_or(0),
        segment_bytes: marks.segment(),
        flags: marks.flags(to),
        ..Outgoing::default()
    };
    let mut through = scope;
    let wishes = match control {
        [] => Wishes::default(),
        control => Wishes::parse(control, socket.v6, to)?,
    };
    let counts = ask_about(socket, &mut outgoing, &wishes)?;
    if !control.is_empty() {
        outgoing.local = wishes.local.filter(|local| !local.is_unspecified());
        outgoing.tos = wishes.tos.unwrap_or(outgoing.tos);
        outgoing.ttl = wishes.ttl.unwrap_or(outgoing.ttl);
        outgoing.segment_bytes = wishes.segment.unwrap_or(outgoing.segment_bytes);
        if let Some(whole) = wishes.dont_fragment {
            outgoing.flags.set(DatagramFlags::WHOLE, whole);
        }
        let leads = |index| session.way_to(to).is_none_or(|way| way.kernel_index == index);
        if to.is_multicast() && wishes.interface != 0 {
            through = wishes.interface;
        } else if wishes.interface != 0 && !leads(wishes.interface) {
            return Ok(Way::Kernels(Errno::NODEV));
        }
        if let Some(local) = outgoing.local.filter(|local| !session.owns(*local)) {
            let refusal = if local.is_ipv4() { Errno::NETUNREACH } else { Errno::INVAL };
            return Ok(Way::Kernels(refusal));
        }
    }
    if to.is_multicast() {
        let Some(interface) = way_to_group(socket, attachment, to, through) else {
            return Ok(Way::Kernels(Errno::NODEV));
        };
        outgoing.interface = interface;
        // It must not leave the host.
        outgoing.flags.set(DatagramFlags::STAYS_HERE, outgoing.ttl == 0);
    }
    fits(&outgoing, session, to, len)?;
    Ok(Way::Ours { outgoing, counts })
}

/// Whether so many bytes fit into one datagram, or into several, to an address.
fn fits(outgoing: &Outgoing, session: &Session, to: IpAddr, len: usize) -> Result<(), Errno> {
    if len > payload_max(to) {
        return Err(Errno::MSGSIZE);
    }
    let headers = if to.is_ipv4() { 20 + 8 } else { 40 + 8 };
    let mtu = || match outgoing.interface {
        0 => session.way_to(to).map_or(usize::MAX, |way| usize::from(way.mtu)),
        interface => session.mtu_of(interface).map_or(usize::MAX, usize::from),
    };
    match usize::from(outgoing.segment_bytes) {
        0 => {
            if outgoing.flags.contains(DatagramFlags::WHOLE) && len + headers > mtu() {
                return Err(Errno::MSGSIZE);
            }
        }
        // As in Linux 6.18 (udp_send_skb).
        piece => {
            if len.min(piece) + headers > mtu() {
                return Err(Errno::MSGSIZE);
            }
            if len > piece * SEGMENTS_MAX || outgoing.flags.contains(DatagramFlags::NO_CHECKSUM) {
                return Err(Errno::INVAL);
            }
        }
    }
    Ok(())
}

/// The kernel's index of the interface in an address, or 0.
fn scope_of(addr: SocketAddr) -> u32 {
    match addr {
        SocketAddr::V6(addr) => addr.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

/// UDP_MAX_SEGMENTS.
const SEGMENTS_MAX: usize = 128;

/// A socket with IP_RECVERR also gets a report of a datagram that is too long.
fn report_too_long(
    socket: &Socket,
    endpoint: &Endpoint,
    attachment: &Attachment,
    peer: SocketAddr,
) {
    let on = socket.marks.on();
    let switch = if peer.is_ipv4() { Switches::RECVERR } else { Switches::RECVERR6 };
    if !on.contains(switch) {
        return;
    }
    let info = attachment.session.way_to(peer.ip()).map_or(0, |way| u32::from(way.mtu));
    let errno = Errno::MSGSIZE.raw_os_error().unsigned_abs();
    endpoint.add_error(ErrorReceived {
        report: ErrorReport { errno, kind: 0, code: 0, info, offender: None },
        remote: peer,
        local: endpoint.local(),
        tos: 0,
        ttl: 0,
        interface: 0,
        payload: Vec::new(),
        at_ns: None,
    });
}
