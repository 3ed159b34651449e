//! The modules that paths lead to, and circles among them.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Sources;

/// The most imports through which a name is followed.
const HOPS_MAX: usize = 8;

/// A module's place below the crate: `["gc", "plan"]`; empty for the crate itself.
pub(super) type Module = Vec<String>;

/// A use of one module by another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) from: Module,
    pub(super) to: Module,
}

/// Returns the uses between modules, from file to file.
pub(super) fn uses(sources: &Sources) -> BTreeSet<Use> {
    let finder = Finder { sources };
    let mut found = BTreeSet::new();
    for (from, source) in sources {
        for named in &source.named {
            let modules = finder.modules(from, &named.path);
            let others = modules.into_iter().filter(|to| to != from);
            found.extend(others.map(|to| Use {
                from: from.clone(),
                to,
            }));
        }
    }
    found
}

/// Returns the circles among sibling modules, each with all its children. (A module and its children are one
/// room.)
pub(super) fn circles(uses: &BTreeSet<Use>) -> Vec<String> {
    let mut levels: BTreeMap<&[String], Neighbours<'_>> = BTreeMap::new();
    for Use { from, to } in uses {
        let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        if let (Some(one), Some(other)) = (from.get(common), to.get(common)) {
            let level = levels.entry(&from[..common]).or_default();
            level.entry(one).or_default().insert(other);
        }
    }
    let mut found = Vec::new();
    for (level, neighbours) in &levels {
        let room = if level.is_empty() {
            "crate".to_owned()
        } else {
            level.join("::")
        };
        found.extend(
            circle(neighbours).map(|names| format!("{room}: circle {}", names.join(" -> "))),
        );
    }
    found
}

type Neighbours<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Returns one circle, with its first module repeated at the end.
fn circle<'a>(neighbours: &Neighbours<'a>) -> Option<Vec<&'a str>> {
    let mut cleared = BTreeSet::new();
    let starts = neighbours.keys();
    starts
        .copied()
        .find_map(|start| circle_from(start, neighbours, &mut Vec::new(), &mut cleared))
}

fn circle_from<'a>(
    module: &'a str,
    neighbours: &Neighbours<'a>,
    way: &mut Vec<&'a str>,
    cleared: &mut BTreeSet<&'a str>,
) -> Option<Vec<&'a str>> {
    if let Some(at) = way.iter().position(|before| *before == module) {
        let mut names = way[at..].to_vec();
        names.push(module);
        return Some(names);
    }
    if cleared.contains(module) {
        return None;
    }
    way.push(module);
    let next = neighbours.get(module).into_iter().flatten();
    let found = next
        .copied()
        .find_map(|next| circle_from(next, neighbours, way, cleared));
    way.pop();
    cleared.insert(module);
    found
}

/// Resolves paths.
#[derive(Debug)]
struct Finder<'a> {
    sources: &'a Sources,
}

impl Finder<'_> {
    /// Returns the modules on a path: the one that it names, and, if that one only re-exports the item, the
    /// one that defines it. Empty for paths outside this crate.
    fn modules(&self, from: &Module, path: &[String]) -> Vec<Module> {
        let mut found = Vec::new();
        let mut here = self.absolute(from, path, 0);
        for _ in 0..HOPS_MAX {
            let Some(path) = here else {
                break;
            };
            let at = (0..=path.len()).rev();
            let module = at
                .map(|length| path[..length].to_vec())
                .find(|module| self.sources.contains_key(module));
            let module = module.unwrap_or_default();
            let rest = &path[module.len()..];
            here = rest
                .first()
                .and_then(|name| self.import(&module, name, 0))
                .map(|target| [target.as_slice(), &rest[1..]].concat());
            found.push(module);
        }
        found
    }

    /// Returns the path from the crate's root.
    fn absolute(&self, from: &Module, path: &[String], hops: usize) -> Option<Vec<String>> {
        let first = path.first()?.as_str();
        if first == "crate" {
            return Some(path[1..].to_vec());
        }
        if first == "self" {
            return Some([from.as_slice(), &path[1..]].concat());
        }
        if first == "super" {
            let ups = path.iter().take_while(|word| *word == "super").count();
            let above = &from[..from.len().saturating_sub(ups)];
            return Some([above, &path[ups..]].concat());
        }
        // A single name may be anything; its import has been seen.
        if path.len() < 2 {
            return None;
        }
        let child = [from.as_slice(), &path[..1]].concat();
        if self.sources.contains_key(&child) {
            return Some([from.as_slice(), path].concat());
        }
        let target = self.import(from, first, hops)?;
        Some([target.as_slice(), &path[1..]].concat())
    }

    /// Returns the target of a module's import with this name, as a path from the crate's root.
    fn import(&self, module: &Module, name: &str, hops: usize) -> Option<Vec<String>> {
        if hops == HOPS_MAX {
            return None;
        }
        let named = &self.sources.get(module)?.named;
        let import = named
            .iter()
            .find(|named| named.imported_as.as_deref() == Some(name))?;
        // `use plan::plan` does not name itself.
        (import.path.len() > 1).then_some(())?;
        self.absolute(module, &import.path, hops + 1)
    }
}
