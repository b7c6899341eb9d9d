//! Blocking sockets.
