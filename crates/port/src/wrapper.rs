//! Ports around other ports.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use arch::SharedBytes;

use crate::interface::{
    Claim, LinkState, Port, PortCounters, PortInfo, RxBurst, RxFrame, RxHandle, TxError, TxMeta,
};

/// A port around another one. It writes what it does itself; everything else is the inner port's. Every
/// wrapper is a [`Port`], whose methods these are.
pub trait PortWrapper: Send {
    /// What it is around.
    type Inner: Port + ?Sized;

    /// The port inside.
    fn inner(&self) -> &Self::Inner;

    /// The same, to be changed.
    fn inner_mut(&mut self) -> &mut Self::Inner;

    /// [`Port::info`].
    fn info(&self) -> &PortInfo {
        self.inner().info()
    }

    /// [`Port::receive`].
    fn receive(&mut self, burst: &mut RxBurst) {
        self.inner_mut().receive(burst);
    }

    /// [`Port::frame`].
    fn frame(&self, handle: RxHandle) -> RxFrame<'_> {
        self.inner().frame(handle)
    }

    /// [`Port::release`].
    fn release(&mut self, burst: &mut RxBurst) {
        self.inner_mut().release(burst);
    }

    /// [`Port::send`].
    ///
    /// # Errors
    /// Why the frame was not taken.
    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        self.inner_mut().send(meta, header, payload)
    }

    /// [`Port::flush`].
    fn flush(&mut self) {
        self.inner_mut().flush();
    }

    /// [`Port::wait_fd`].
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner().wait_fd()
    }

    /// [`Port::counters`].
    fn counters(&self) -> PortCounters {
        self.inner().counters()
    }

    /// [`Port::next_deadline`].
    fn next_deadline(&self) -> Option<u64> {
        self.inner().next_deadline()
    }

    /// [`Port::on_time`].
    fn on_time(&mut self, now_ns: u64) {
        self.inner_mut().on_time(now_ns);
    }

    /// [`Port::is_gone`].
    fn is_gone(&self) -> bool {
        self.inner().is_gone()
    }

    /// [`Port::is_up`].
    fn is_up(&self) -> bool {
        self.inner().is_up()
    }

    /// [`Port::claim`].
    ///
    /// # Errors
    /// What the kernel says.
    fn claim(&mut self, claim: &Claim) -> io::Result<()> {
        self.inner_mut().claim(claim)
    }

    /// [`Port::release_claim`].
    fn release_claim(&mut self, claim: &Claim) {
        self.inner_mut().release_claim(claim);
    }

    /// [`Port::follow`].
    ///
    /// # Errors
    /// What the kernel says.
    fn follow(&mut self, addresses: &[IpAddr], mtu: u16) -> io::Result<()> {
        self.inner_mut().follow(addresses, mtu)
    }

    /// [`Port::follow_link`].
    ///
    /// # Errors
    /// When not all queues can be served.
    fn follow_link(&mut self, link: &LinkState) -> io::Result<()> {
        self.inner_mut().follow_link(link)
    }

    /// [`Port::divide`]. A wrapper whose bursts are not those of the port inside must write it.
    fn divide(
        &mut self,
        burst: &RxBurst,
        taken: u64,
        awaits: &dyn Fn(SocketAddr, SocketAddr) -> bool,
    ) -> u64 {
        self.inner_mut().divide(burst, taken, awaits)
    }

    /// [`Port::relay`].
    fn relay(&mut self, sees: &mut dyn FnMut(&TxMeta, &[u8])) -> usize {
        self.inner_mut().relay(sees)
    }
}

impl<P: Port + ?Sized> PortWrapper for Box<P> {
    type Inner = P;

    fn inner(&self) -> &P {
        self
    }

    fn inner_mut(&mut self) -> &mut P {
        self
    }
}

impl<W: PortWrapper> Port for W {
    fn info(&self) -> &PortInfo {
        PortWrapper::info(self)
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        PortWrapper::receive(self, burst);
    }

    fn frame(&self, handle: RxHandle) -> RxFrame<'_> {
        PortWrapper::frame(self, handle)
    }

    fn release(&mut self, burst: &mut RxBurst) {
        PortWrapper::release(self, burst);
    }

    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        PortWrapper::send(self, meta, header, payload)
    }

    fn flush(&mut self) {
        PortWrapper::flush(self);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        PortWrapper::wait_fd(self)
    }

    fn counters(&self) -> PortCounters {
        PortWrapper::counters(self)
    }

    fn next_deadline(&self) -> Option<u64> {
        PortWrapper::next_deadline(self)
    }

    fn on_time(&mut self, now_ns: u64) {
        PortWrapper::on_time(self, now_ns);
    }

    fn is_gone(&self) -> bool {
        PortWrapper::is_gone(self)
    }

    fn is_up(&self) -> bool {
        PortWrapper::is_up(self)
    }

    fn claim(&mut self, claim: &Claim) -> io::Result<()> {
        PortWrapper::claim(self, claim)
    }

    fn release_claim(&mut self, claim: &Claim) {
        PortWrapper::release_claim(self, claim);
    }

    fn follow(&mut self, addresses: &[IpAddr], mtu: u16) -> io::Result<()> {
        PortWrapper::follow(self, addresses, mtu)
    }

    fn follow_link(&mut self, link: &LinkState) -> io::Result<()> {
        PortWrapper::follow_link(self, link)
    }

    fn divide(
        &mut self,
        burst: &RxBurst,
        taken: u64,
        awaits: &dyn Fn(SocketAddr, SocketAddr) -> bool,
    ) -> u64 {
        PortWrapper::divide(self, burst, taken, awaits)
    }

    fn relay(&mut self, sees: &mut dyn FnMut(&TxMeta, &[u8])) -> usize {
        PortWrapper::relay(self, sees)
    }
}
