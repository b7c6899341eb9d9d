//! What there is, for whoever looks: counters, sockets, and what is known of a connection.

use std::net::SocketAddr;

use super::{SocketInfo, Stack};
use crate::api::{Instant, RequestError, SocketId};
use crate::tcp::{TcpCensus, TcpCounts, TcpModel, TcpProgress, TcpRates};

impl Stack {
    /// Every counter but the drops with its name, those of TCP too (their names begin with
    /// `tcp_`).
    pub fn each_counter(&self, mut visit: impl FnMut(&str, u64)) {
        self.counters.each(&mut visit);
        self.tcp.counters().each(visit);
    }

    /// What TCP holds now.
    pub fn tcp_census(&self) -> TcpCensus {
        self.tcp.census()
    }

    /// Every socket.
    pub fn sockets(&self) -> impl Iterator<Item = SocketInfo> + '_ {
        (0..self.socket_places()).filter_map(|place| self.socket_at(place))
    }

    /// How many places [`Stack::socket_at`] has now; more may come.
    pub fn socket_places(&self) -> usize {
        self.udp.places() + self.tcp.places()
    }

    /// The socket at a place, if there is one. Each keeps its own as long as it lives, so that a
    /// list can be made in several steps.
    pub fn socket_at(&self, place: usize) -> Option<SocketInfo> {
        match place.checked_sub(self.udp.places()) {
            None => {
                let id = self.udp.id_at(place)?;
                Some(SocketInfo::Udp(id, self.udp.info(id).ok()?))
            }
            Some(place) => {
                let id = self.tcp.id_at(place)?;
                Some(SocketInfo::Tcp(id, self.tcp.info(id).ok()?))
            }
        }
    }

    /// The local address of the connection at a place of [`Stack::socket_at`], if there is one.
    pub fn connection_at(&self, place: usize) -> Option<SocketAddr> {
        self.tcp.connection_at(place.checked_sub(self.udp.places())?)
    }

    /// How many places [`Stack::time_wait_at`] has now; more may come.
    pub fn time_wait_places(&self) -> usize {
        self.tcp.time_wait_places()
    }

    /// The local address of the connection in TIME-WAIT at a place, if there is one.
    pub fn time_wait_at(&self, place: usize) -> Option<SocketAddr> {
        self.tcp.time_wait_at(place)
    }

    /// What has become of a connection's data so far.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_progress(&self, now: Instant, id: SocketId) -> Result<TcpProgress, RequestError> {
        self.tcp.progress(now, id)
    }

    /// Rates and amounts of a connection.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_rates(&self, now: Instant, id: SocketId) -> Result<TcpRates, RequestError> {
        self.tcp.rates(now, id)
    }

    /// What a connection's congestion control knows of the path.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_model(&self, id: SocketId) -> Result<TcpModel, RequestError> {
        self.tcp.model(id)
    }

    /// What was counted of a connection.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_counts(&self, now: Instant, id: SocketId) -> Result<TcpCounts, RequestError> {
        self.tcp.counts(now, id)
    }
}
