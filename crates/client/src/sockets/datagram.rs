//! UDP sockets: a kernel socket and an engine endpoint under one number. Sending goes by the
//! destination, receiving takes from both.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use super::link::Attachment;
use super::socket::{Datagram, IN_BITS, OUT_BITS, Socket, held, is_kernels, plain, timeout};
use super::transfer::may_wait;
use super::{Era, Errno, Received, Sockets, Verdict};

impl Sockets {
    /// The socket's face in the engine; made (binding the kernel's side to a free port if it is
    /// not bound) when the engine reaches `to`.
    fn face(
        &self,
        era: &Era,
        socket: &Arc<Socket>,
        fd: RawFd,
        to: IpAddr,
    ) -> Option<(Arc<crate::Endpoint>, Arc<Attachment>)> {
        let present = || {
            let datagram = held(socket.datagram.read());
            datagram.as_ref().map(|face| (face.endpoint.clone(), face.attachment.clone()))
        };
        if is_kernels(to) || to.is_unspecified() {
            return None;
        }
        if let Some(face) = present().filter(|(_, attachment)| !attachment.is_lost()) {
            return face.1.serves(to).then_some(face);
        }
        let attachment = self.attach(era).filter(|attachment| attachment.serves(to))?;
        if self.kernel.local(fd).is_ok_and(|local| local.port() == 0) {
            let any = if socket.v6 {
                IpAddr::V6(Ipv6Addr::UNSPECIFIED)
            } else {
                IpAddr::V4(Ipv4Addr::UNSPECIFIED)
            };
            self.kernel.bind(fd, SocketAddr::new(any, 0)).ok()?;
        }
        self.show(era, socket, &attachment);
        present()
    }

    /// connect(2) on a UDP socket.
    pub(super) fn connect_datagram(
        &self,
        era: &Era,
        socket: &Arc<Socket>,
        fd: RawFd,
        to: Option<SocketAddr>,
    ) -> Verdict<()> {
        let face = to.map(plain).and_then(|to| Some((to, self.face(era, socket, fd, to.ip())?)));
        let Some((to, (endpoint, _))) = face else {
            // Loosened, or connected to a peer of the kernel's: then only the kernel can bring
            // anything.
            let present = held(socket.datagram.write()).take();
            if let Some(Datagram { endpoint, attachment, .. }) = present {
                attachment.forget(endpoint.id());
                endpoint.close();
            }
            if to.is_some() {
                self.give_to_kernel(era, socket);
                era.link.forget(socket);
            }
            return Verdict::Kernel;
        };
        if let Err(error) = endpoint.set_peer(Some(to)) {
            return Verdict::Done(Err(error));
        }
        if let Some(datagram) = held(socket.datagram.write()).as_mut() {
            datagram.peer = Some(to);
        }
        // So that the kernel's side passes nothing from others; it may have no route, which is as
        // well.
        let _ = self.kernel.connect(fd, socket.dressed(to));
        Verdict::Done(Ok(()))
    }

    pub(super) fn send_datagram(
        &'static self,
        era: &Era,
        socket: &Arc<Socket>,
        fd: RawFd,
        bufs: &[IoSlice<'_>],
        flags: i32,
        to: Option<SocketAddr>,
    ) -> Verdict<usize> {
        let endpoint = match to.map(plain) {
            Some(to) => self.face(era, socket, fd, to.ip()).map(|(endpoint, _)| endpoint),
            None => {
                let datagram = held(socket.datagram.read());
                let peered = datagram.as_ref().filter(|datagram| datagram.peer.is_some());
                peered.map(|datagram| datagram.endpoint.clone())
            }
        };
        let Some(endpoint) = endpoint else { return Verdict::Kernel };
        let wait = may_wait(socket, flags);
        loop {
            match endpoint.send_to(to.map(plain), None, bufs) {
                Err(Errno::AGAIN) if wait => {
                    let limit = timeout(&socket.send_timeout_ns);
                    if let Err(error) = self.block(era, socket, OUT_BITS, 0, limit) {
                        return Verdict::Done(Err(error));
                    }
                }
                outcome => return Verdict::Done(outcome),
            }
        }
    }

    pub(super) fn receive_datagram(
        &'static self,
        era: &Era,
        socket: &Arc<Socket>,
        fd: RawFd,
        bufs: &mut [IoSliceMut<'_>],
        control: &mut [u8],
        flags: i32,
    ) -> Verdict<Received> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            // The kernel's queue of errors; asking for it never waits.
            return Verdict::Kernel;
        }
        let wait = may_wait(socket, flags);
        loop {
            let face = {
                let datagram = held(socket.datagram.read());
                datagram.as_ref().map(|face| (face.endpoint.clone(), face.peer.is_some()))
            };
            let peered = face.as_ref().is_some_and(|(_, peered)| *peered);
            let got = match face {
                Some((endpoint, _)) if flags & libc::MSG_PEEK != 0 => endpoint.peek_from(bufs),
                Some((endpoint, _)) => endpoint.recv_from(bufs),
                // Waiting is done here, for the socket may become the engine's meanwhile: by what
                // another thread sends, or because an engine comes.
                None if wait => Err(Errno::AGAIN),
                None => return Verdict::Kernel,
            };
            match got {
                Ok(got) => {
                    let whole = flags & libc::MSG_TRUNC != 0;
                    return Verdict::Done(Ok(Received {
                        len: if whole { got.full_len } else { got.len },
                        from: Some(socket.dressed(got.remote)),
                        flags: if got.full_len > got.len { libc::MSG_TRUNC } else { 0 },
                        control_len: 0,
                    }));
                }
                Err(Errno::AGAIN) => (),
                Err(error) => return Verdict::Done(Err(error)),
            }
            // With a peer of the engine's, the kernel's side has nothing to bring.
            if !peered {
                match self.kernel.receive(fd, bufs, control, flags | libc::MSG_DONTWAIT) {
                    Err(Errno::AGAIN) => (),
                    outcome => return Verdict::Done(outcome),
                }
            }
            if !wait {
                return Verdict::Done(Err(Errno::AGAIN));
            }
            let limit = timeout(&socket.receive_timeout_ns);
            if let Err(error) = self.block(era, socket, IN_BITS, libc::POLLIN, limit) {
                return Verdict::Done(Err(error));
            }
        }
    }
}
