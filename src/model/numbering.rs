//! Texts by number: with 100,000 objects, lookups by number avoid comparing ids of 64 characters over
//! and over.

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
    pub fn of(texts: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        Self::within(texts.into_iter().map(|text| Some((0, text?))))
    }

    /// Numbers texts per owner: texts are equal only if their owners are equal too.
    pub fn within(texts: impl IntoIterator<Item = Option<(usize, &'a str)>>) -> Self {
        let texts = texts.into_iter();
        let count = texts.size_hint().0;
        let (mut keys, mut at) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (place, text) in texts.enumerate() {
            keys.extend(text.map(|(owner, text)| sort_key(owner, text, place)));
            at.push(text.map_or("", |(_, text)| text));
        }
        // Sorting numbers is quick; only texts with equal first bytes are compared in full.
        keys.sort_unstable();
        let text_of = |place: &u32| at.get(*place as usize).copied().unwrap_or_default();
        let mut order: Vec<u32> = keys.iter().map(|key| place_of(*key)).collect();
        let (mut texts, mut numbers, mut rest) = (Vec::new(), vec![None; at.len()], &mut *order);
        for begin_alike in keys.chunk_by(|a, b| a >> PLACE_BITS == b >> PLACE_BITS) {
            let begin = begin_alike.first().map_or(0, |key| head_of(*key));
            let places = rest.split_off_mut(..begin_alike.len()).unwrap_or_default();
            if !places.is_sorted_by(|a, b| are_equal(text_of(a), text_of(b))) {
                places.sort_by_key(text_of);
            }
            for equal in places.chunk_by(|a, b| are_equal(text_of(a), text_of(b))) {
                for place in equal {
                    if let Some(number) = numbers.get_mut(*place as usize) {
                        *number = u32::try_from(texts.len()).ok();
                    }
                }
                texts.extend(equal.first().map(|place| (begin, text_of(place))));
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
        let entries = entries.into_iter();
        let mut entries = entries.map(|(key, it)| ((head(key), key), it)).peekable();
        let found = self.texts.iter().map(|text| {
            while entries.next_if(|(key, _)| key < text).is_some() {}
            entries.next_if(|(key, _)| key == text).map(|(_, it)| it)
        });
        found.collect()
    }
}

/// Number of bits of a sort key that hold the position.
const PLACE_BITS: u32 = 32;

/// Sorts by owner, then by the first bytes of the text, then by position.
fn sort_key(owner: usize, text: &str, place: usize) -> u128 {
    (owner as u128) << 96 | u128::from(head(text)) << PLACE_BITS | place as u128
}

fn head_of(key: u128) -> u64 {
    u64::try_from((key >> PLACE_BITS) & u128::from(u64::MAX)).unwrap_or_default()
}

fn place_of(key: u128) -> u32 {
    u32::try_from(key & u128::from(u32::MAX)).unwrap_or_default()
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
            let lengths = wanted.iter().enumerate();
            let lengths: Vec<_> =
                lengths.map(|(at, text)| (at % 2 == 0).then_some(text.len())).collect();
            prop_assert_eq!(numbering.beside(some), lengths);
            prop_assert_eq!(numbering.find("c"), None);
            prop_assert_eq!(numbering.places().count(), wanted.len());
            for (number, mut places) in numbering.places().enumerate() {
                prop_assert!(places.clone().is_sorted());
                prop_assert!(places.all(|place| numbering.at(place) == Some(number)));
            }
            let owned = texts.iter().enumerate().map(|(at, it)| Some((at % 3, it.as_deref()?)));
            let numbering = Numbering::within(owned);
            let mut wanted: Vec<(usize, &String)> = texts
                .iter()
                .enumerate()
                .filter_map(|(at, it)| Some((at % 3, it.as_ref()?)))
                .collect();
            wanted.sort_unstable();
            wanted.dedup();
            for (place, text) in texts.iter().enumerate() {
                let number = text.as_ref().and_then(|it| wanted.binary_search(&(place % 3, it)).ok());
                prop_assert_eq!(numbering.at(place), number);
            }
            prop_assert_eq!(numbering.at(texts.len()), None);
        }
    }
}
