//! Error texts of the runtime, shortened for people. The whole text stays within reach.

use std::collections::BTreeMap;

use crate::model::Target;

/// What failed, and how often with the same message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failures {
    /// The kind of object; `None`: the text is of the pass as a whole.
    pub(super) target: Option<Target>,
    pub(super) message: String,
    /// How often.
    pub(super) count: u64,
}

/// Groups the errors of a pass by their innermost message, the first one first.
pub(super) fn grouped(errors: &[String]) -> Vec<Failures> {
    let mut places: BTreeMap<(Option<Target>, String), usize> = BTreeMap::new();
    let mut groups: Vec<Failures> = Vec::new();
    for error in errors {
        let (target, message) = of_object(error);
        let place = places
            .entry((target, message.clone()))
            .or_insert(groups.len());
        match groups.get_mut(*place) {
            Some(group) => group.count += 1,
            None => groups.push(Failures {
                target,
                message,
                count: 1,
            }),
        }
    }
    groups
}

/// Errors about an object begin with its target and id.
fn of_object(error: &str) -> (Option<Target>, String) {
    let target = |word: &str| Target::ALL.into_iter().find(|it| it.label() == word);
    let parts = error.split_once(' ').and_then(|(word, rest)| {
        let (_, message) = rest.split_once(": ")?;
        Some((target(word)?, message))
    });
    match parts {
        Some((target, message)) => (Some(target), innermost(message).to_owned()),
        None => (None, error.to_owned()),
    }
}

/// Returns the innermost message of a runtime's nested error: what the network plugin said, else what follows the
/// wrappers of the RPC and of the runtime.
pub(super) fn innermost(error: &str) -> &str {
    let after = |text: &'static str| move |error: &str| error.rfind(text).map(|at| at + text.len());
    let description = after("desc = ")(error).and_then(|at| error.get(at..));
    let mut rest = description.unwrap_or(error);
    if let Some(plugin) = rest.rfind("plugin type=")
        && let Some(at) = rest.get(plugin..).and_then(|it| it.find("): "))
    {
        rest = rest.get(plugin + at + 3..).unwrap_or(rest);
    }
    while let Some((outer, inner)) = rest.split_once(": ")
        && (outer.starts_with("failed to ") || outer.starts_with("rpc error") || outer == "error")
        && !inner.is_empty()
    {
        rest = inner;
    }
    rest.trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_message_is_what_the_plugin_said() {
        for (error, message) in [
            (
                "rpc error: code = Unknown desc = failed to destroy network for sandbox \"0f3a\": plugin \
                 type=\"calico\" failed (delete): error getting ClusterInformation: connection is unauthorized",
                "error getting ClusterInformation: connection is unauthorized",
            ),
            (
                "rpc error: code = Internal desc = failed to stop sandbox \"x\": failed to stop task: device busy",
                "device busy",
            ),
            (
                "something else: with a colon",
                "something else: with a colon",
            ),
            ("failed to ", "failed to"),
            ("", ""),
            ("plugin type=\"x", "plugin type=\"x"),
        ] {
            assert_eq!(innermost(error), message);
        }
    }

    #[test]
    fn equal_messages_are_told_once_with_their_number() {
        let of = |id: &str| {
            format!("sandboxes {id}: CRI RemovePodSandbox: desc = failed to stop \"{id}\": busy")
        };
        let errors = [of("a"), "max_removals is reached".to_owned(), of("b")];
        let group = |target, message: &str, count| Failures {
            target,
            message: message.to_owned(),
            count,
        };
        let told = [
            group(Some(Target::Sandboxes), "busy", 2),
            group(None, "max_removals is reached", 1),
        ];
        assert_eq!(grouped(&errors), told);
    }
}
