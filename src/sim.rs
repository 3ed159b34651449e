//! A simulated node: a CRI server on a unix socket. For the demo, tests and benches; the service never uses it.
