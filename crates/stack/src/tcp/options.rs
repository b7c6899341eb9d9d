//! The options that many connections have together: most have those of their listener, or all
//! the same.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::api::{Metrics, TcpOptions};

/// Options, kept once for all connections that have the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedOptions(Arc<TcpOptions>);

impl SharedOptions {
    /// Makes `self` equal to `options`, and gives it; without memory of its own where it is so
    /// already.
    pub fn follow(&mut self, options: TcpOptions) -> Self {
        if *self.0 != options {
            self.0 = Arc::new(options);
        }
        self.clone()
    }
}

impl SharedOptions {
    /// Those of `listener` for a connection over a route that says `metrics`; without memory of its
    /// own where `self` is equal already, or the route says nothing.
    pub fn on_route(&mut self, listener: &Self, metrics: Metrics) -> Self {
        match metrics == Metrics::default() {
            true => listener.clone(),
            false => self.follow(listener.0.on_route(metrics)),
        }
    }
}

impl From<TcpOptions> for SharedOptions {
    fn from(options: TcpOptions) -> Self {
        Self(Arc::new(options))
    }
}

impl Deref for SharedOptions {
    type Target = TcpOptions;

    fn deref(&self) -> &TcpOptions {
        &self.0
    }
}

impl Serialize for SharedOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SharedOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        TcpOptions::deserialize(deserializer).map(Self::from)
    }
}
