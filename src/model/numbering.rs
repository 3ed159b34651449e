//! Texts by number: with 100,000 objects, lookups by number avoid comparing ids of 64 characters over
//! and over.

use std::cmp::Ordering;

/// Texts by number. Equal texts have one number; numbers follow the order of the texts.
#[derive(Clone, Debug, Default)]
pub struct Numbering<'a> {
    /// Each text once, in order, with its first 8 bytes as a number ([`head`]).
    texts: Vec<(u64, &'a str)>,
    /// The number of the text at each input position.
    numbers: Vec<Option<u32>>,
    /// The input positions that have a text, in the order of their numbers.
    order: Vec<u32>,
}

impl<'a> Numbering<'a> {
    /// Numbers these texts; `None` gets no number.
    pub fn of(texts: impl Iterator<Item = Option<&'a str>> + Clone) -> Self {
        Self::of_shared(texts, |text| text)
    }

    /// Numbers the texts of these values; `None` gets no number. Reads and sorts a value once for all positions that
    /// share it: with 150,000 records of 40,000 pods that takes a third of the time.
    pub fn of_shared<T: ?Sized + 'a>(
        values: impl Iterator<Item = Option<&'a T>> + Clone,
        text: impl Fn(&'a T) -> &'a str,
    ) -> Self {
        let mut distinct = Distinct::with_capacity(values.clone().count());
        let mut numbers: Vec<Option<u32>> = values.map(|it| Some(distinct.add(it?))).collect();
        let texts: Vec<&str> = distinct.values.into_iter().map(text).collect();
        let (number_of, texts) = in_order(&texts);
        for number in numbers.iter_mut().flatten() {
            *number = number_of.get(*number as usize).copied().unwrap_or_default();
        }
        Self {
            order: by_number(&numbers),
            texts,
            numbers,
        }
    }

    /// Numbers texts per owner: texts are equal only if their owners are equal too. Owners are numbers from 0 on.
    pub fn within(texts: impl IntoIterator<Item = (usize, &'a str)>) -> Self {
        let texts = texts.into_iter();
        let (owners, at): (Vec<Option<u32>>, Vec<&str>) = texts
            .map(|(owner, text)| (u32::try_from(owner).ok(), text))
            .unzip();
        let owner_of = |place: &u32| owners.get(*place as usize);
        let text_of = |place: &u32| at.get(*place as usize).copied().unwrap_or_default();
        let (mut texts, mut numbers) = (Vec::new(), vec![None; at.len()]);
        let mut order = by_number(&owners);
        for of_owner in order.chunk_by_mut(|a, b| owner_of(a) == owner_of(b)) {
            of_owner.sort_by(|a, b| compare(text_of(a), text_of(b)));
            for equal in of_owner.chunk_by(|a, b| are_equal(text_of(a), text_of(b))) {
                for place in equal {
                    if let Some(number) = numbers.get_mut(*place as usize) {
                        *number = u32::try_from(texts.len()).ok();
                    }
                }
                let text = equal.first().map(text_of);
                texts.extend(text.map(|text| (head(text), text)));
            }
        }
        Self {
            texts,
            numbers,
            order,
        }
    }

    /// Returns the number of the text at this input position.
    pub fn at(&self, place: usize) -> Option<usize> {
        let number = self.numbers.get(place).copied().flatten();
        number.map(|number| number as usize)
    }

    /// Returns a text's number.
    pub fn find(&self, text: &str) -> Option<usize> {
        self.texts.binary_search(&(head(text), text)).ok()
    }

    /// Returns each text once, in the order of the numbers.
    pub fn texts(&self) -> impl ExactSizeIterator<Item = &'a str> {
        self.texts.iter().map(|(_, text)| *text)
    }

    /// Returns the input positions of each number, in the order of the numbers.
    pub fn places(&self) -> impl Iterator<Item = impl Iterator<Item = usize> + Clone> {
        let number = |place: u32| self.numbers.get(place as usize);
        let equal = self.order.chunk_by(move |a, b| number(*a) == number(*b));
        equal.map(|places| places.iter().map(|place| *place as usize))
    }

    /// Returns for each number the value that these entries have for its text. The entries must be sorted by
    /// text, without duplicates.
    pub fn beside<T>(&self, entries: impl IntoIterator<Item = (&'a str, T)>) -> Vec<Option<T>> {
        let mut entries = entries.into_iter().peekable();
        let found = self.texts.iter().map(|(begin, text)| {
            loop {
                let (key, _) = entries.peek()?;
                // A key that is the text itself is not read: it lies anywhere in memory.
                let order = if std::ptr::eq(*key, *text) {
                    Ordering::Equal
                } else {
                    head(key).cmp(begin).then_with(|| key.cmp(text))
                };
                match order {
                    Ordering::Less => drop(entries.next()),
                    Ordering::Equal => return entries.next().map(|(_, it)| it),
                    Ordering::Greater => return None,
                }
            }
        });
        found.collect()
    }
}

/// Sorts texts; returns the number of each, and each text once, with its head.
fn in_order<'a>(texts: &[&'a str]) -> (Vec<u32>, Vec<(u64, &'a str)>) {
    let mut keys: Vec<(u64, u32)> = texts.iter().map(|text| head(text)).zip(0..).collect();
    // Sorting numbers is quick; only texts with equal first bytes are compared in full.
    keys.sort_unstable_by_key(|(begin, _)| *begin);
    let text_of = |key: &(u64, u32)| texts.get(key.1 as usize).copied().unwrap_or_default();
    let (mut once, mut number_of) = (Vec::with_capacity(texts.len()), vec![0; texts.len()]);
    for begin_alike in keys.chunk_by_mut(|a, b| a.0 == b.0) {
        begin_alike.sort_unstable_by(|a, b| compare(text_of(a), text_of(b)));
        for equal in begin_alike.chunk_by(|a, b| are_equal(text_of(a), text_of(b))) {
            for (_, place) in equal {
                if let Some(number) = number_of.get_mut(*place as usize) {
                    *number = u32::try_from(once.len()).unwrap_or(u32::MAX);
                }
            }
            once.extend(equal.first().map(|key| (key.0, text_of(key))));
        }
    }
    (number_of, once)
}

/// Returns the positions that have a number, in the order of the numbers; those of one number in their own order.
fn by_number(numbers: &[Option<u32>]) -> Vec<u32> {
    let most = numbers.iter().flatten().max();
    let mut counts = vec![0_u32; most.map_or(0, |most| *most as usize + 1)];
    for number in numbers.iter().flatten() {
        if let Some(count) = counts.get_mut(*number as usize) {
            *count += 1;
        }
    }
    // Where the next position of each number goes.
    let (mut next, mut all) = (counts, 0);
    for it in &mut next {
        (*it, all) = (all, all + *it);
    }
    let mut order = vec![0; all as usize];
    for (number, place) in numbers.iter().zip(0..) {
        let next = number.and_then(|number| next.get_mut(number as usize));
        let slot = next.as_deref().and_then(|at| order.get_mut(*at as usize));
        if let (Some(next), Some(slot)) = (next, slot) {
            *slot = place;
            *next += 1;
        }
    }
    order
}

/// Values by their address, each once: a hash table with linear probing. Finds only what is one in memory; equal
/// values at two addresses stay two, so that no result depends on an address.
struct Distinct<'a, T: ?Sized> {
    values: Vec<&'a T>,
    /// A value's position plus 1, in the slot of its hash or the next free one; 0 is free. More slots than values.
    slots: Vec<u32>,
    /// Leaves as many bits of a hash as a slot's position has.
    shift: u32,
}

impl<'a, T: ?Sized> Distinct<'a, T> {
    /// Makes room for this many values at most.
    fn with_capacity(count: usize) -> Self {
        let slots = (count + count / 2 + 2).next_power_of_two();
        Self {
            values: Vec::new(),
            slots: vec![0; slots],
            shift: u64::BITS - slots.ilog2(),
        }
    }

    /// Returns the position of a value among the distinct ones; adds it unless it is there.
    fn add(&mut self, value: &'a T) -> u32 {
        let mut at = self.slot_of(value);
        loop {
            let slot = self.slots.get_mut(at);
            let Some(place) = slot.as_deref().and_then(|slot| slot.checked_sub(1)) else {
                self.values.push(value);
                let count = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
                if let Some(slot) = slot {
                    *slot = count;
                }
                return count - 1;
            };
            let found = self.values.get(place as usize);
            if found.is_some_and(|it| std::ptr::eq(*it, value)) {
                return place;
            }
            at = (at + 1) % self.slots.len();
        }
    }

    /// Multiplies the address with the golden ratio: the first bits then differ even for neighbours.
    fn slot_of(&self, value: &T) -> usize {
        let address = std::ptr::from_ref(value).cast::<()>().addr() as u64;
        let hash = address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift;
        usize::try_from(hash).unwrap_or_default()
    }
}

/// Returns the first 8 bytes as one number, which orders as the text does.
pub fn head(text: &str) -> u64 {
    if let Some(letters) = text.as_bytes().first_chunk() {
        return u64::from_be_bytes(*letters);
    }
    let mut letters = [0; 8];
    for (letter, byte) in letters.iter_mut().zip(text.bytes()) {
        *letter = byte;
    }
    u64::from_be_bytes(letters)
}

/// Most equal texts are the same shared text: comparing pointers avoids reading it.
fn are_equal(a: &str, b: &str) -> bool {
    std::ptr::eq(a, b) || a == b
}

fn compare(a: &str, b: &str) -> Ordering {
    if std::ptr::eq(a, b) {
        return Ordering::Equal;
    }
    a.cmp(b)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_follow_the_order_of_the_texts(
            texts in prop::collection::vec(prop::option::of("[ab\0]{0,18}"), 0..40)
        ) {
            let numbering = Numbering::of(texts.iter().map(Option::as_deref));
            let mut wanted: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
            wanted.sort_unstable();
            wanted.dedup();
            let found: Vec<&str> = numbering.texts().collect();
            prop_assert_eq!(&found, &wanted);
            for (place, text) in texts.iter().enumerate() {
                let number = text.as_ref().and_then(|text| wanted.binary_search(&text.as_str()).ok());
                prop_assert_eq!(numbering.at(place), number);
                if let Some(text) = text {
                    prop_assert_eq!(numbering.find(text), number);
                }
            }
            let some = wanted.iter().step_by(2).chain(&["c"]).map(|text| (*text, text.len()));
            let copies: Vec<(String, usize)> = some.clone().map(|(text, it)| (text.to_owned(), it)).collect();
            let lengths = wanted.iter().enumerate();
            let lengths: Vec<_> =
                lengths.map(|(at, text)| (at % 2 == 0).then_some(text.len())).collect();
            prop_assert_eq!(&numbering.beside(some), &lengths);
            prop_assert_eq!(numbering.beside(copies.iter().map(|(text, it)| (text.as_str(), *it))), lengths);
            prop_assert_eq!(numbering.find("c"), None);
            prop_assert_eq!(numbering.places().count(), wanted.len());
            for (number, mut places) in numbering.places().enumerate() {
                prop_assert!(places.clone().is_sorted());
                prop_assert!(places.all(|place| numbering.at(place) == Some(number)));
            }
            prop_assert_eq!(numbering.at(texts.len()), None);
        }

        #[test]
        fn equal_texts_of_two_owners_have_two_numbers(
            texts in prop::collection::vec((0..4_usize, "[ab]{0,10}"), 0..40)
        ) {
            let numbering = Numbering::within(texts.iter().map(|(owner, text)| (*owner, text.as_str())));
            let mut wanted = texts.clone();
            wanted.sort_unstable();
            wanted.dedup();
            let wanted_texts = wanted.iter().map(|(_, text)| text.as_str());
            prop_assert!(numbering.texts().eq(wanted_texts));
            for (place, text) in texts.iter().enumerate() {
                prop_assert_eq!(numbering.at(place), wanted.binary_search(text).ok());
            }
            for (number, mut places) in numbering.places().enumerate() {
                prop_assert!(places.clone().is_sorted());
                prop_assert!(places.all(|place| numbering.at(place) == Some(number)));
            }
        }

        /// Some equal texts are one in memory, others are copies.
        #[test]
        fn copies_of_a_text_have_its_number(
            pool in prop::collection::vec("[ab]{0,10}", 1..8),
            picks in prop::collection::vec(prop::option::of((any::<prop::sample::Index>(), any::<bool>())), 0..200)
        ) {
            let copies = pool.clone();
            let pick = |(at, copy): &(prop::sample::Index, bool)| at.get(if *copy { &copies } else { &pool }).as_str();
            let some_shared: Vec<Option<&str>> = picks.iter().map(|it| it.as_ref().map(pick)).collect();
            let none_shared: Vec<Option<String>> =
                some_shared.iter().map(|text| text.map(str::to_owned)).collect();
            let numbering = Numbering::of(some_shared.into_iter());
            let wanted = Numbering::of(none_shared.iter().map(Option::as_deref));
            prop_assert!(numbering.texts().eq(wanted.texts()));
            prop_assert_eq!(numbering.numbers, wanted.numbers);
            prop_assert_eq!(numbering.order, wanted.order);
        }
    }
}
