//! Whole-system tests: real programs in network namespaces.
