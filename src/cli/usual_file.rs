//! The configuration file that commands about a node read where no flag names one.

use std::path::Path;

/// Where the package and the unit have the service's configuration.
pub(super) const USUAL_FILE: &str = "/etc/crisweep/crisweep.yaml";

/// Says why the configuration is refused. No flag named the usual file, so the keys alone would not say where to look.
pub(super) fn refused(error: &str, file: Option<&Path>) -> String {
    if file != Some(Path::new(USUAL_FILE)) || error.contains(USUAL_FILE) {
        return error.to_owned();
    }
    format!("the configuration ({USUAL_FILE} and the environment) is refused:\n{error}")
}
