//! Every setting, its default and its check. The only reader of configuration files and environment.
