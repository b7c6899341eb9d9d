//! Outboard's command line, as a library shared with the tests.
