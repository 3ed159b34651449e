//! Texts by number: what is asked of each of 100,000 objects is found by its place, not by comparing
//! ids of 64 letters over and over.

/// Texts by number. Equal texts have one number; numbers follow the order of the texts.
#[derive(Clone, Debug, Default)]
pub struct Numbering<'a> {
    /// Each text once, in order, and before it the letters that it begins with.
    texts: Vec<(u128, &'a str)>,
    /// By place among the texts that it was made of.
    numbers: Vec<Option<usize>>,
}

impl<'a> Numbering<'a> {
    /// Numbers these texts; some places may have none.
    pub fn of(texts: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        let mut places = 0;
        let mut sorted = Vec::new();
        for text in texts {
            sorted.extend(text.map(|text| (head(text), text, places)));
            places += 1;
        }
        sorted.sort_unstable();
        let mut numbering = Self {
            texts: Vec::new(),
            numbers: vec![None; places],
        };
        for (head, text, place) in sorted {
            if numbering.texts.last() != Some(&(head, text)) {
                numbering.texts.push((head, text));
            }
            if let Some(number) = numbering.numbers.get_mut(place) {
                *number = numbering.texts.len().checked_sub(1);
            }
        }
        numbering
    }

    /// Returns the number of the text at this place.
    pub fn at(&self, place: usize) -> Option<usize> {
        self.numbers.get(place).copied().flatten()
    }

    /// Returns a text's number.
    pub fn find(&self, text: &str) -> Option<usize> {
        self.texts.binary_search(&(head(text), text)).ok()
    }

    /// Returns for each number what these entries have of its text; they are in the order of their texts,
    /// each once.
    pub fn beside<T>(&self, entries: impl IntoIterator<Item = (&'a str, T)>) -> Vec<Option<T>> {
        let mut entries = entries.into_iter().peekable();
        let found = self.texts().map(|text| {
            while entries.next_if(|(key, _)| *key < text).is_some() {}
            entries.next_if(|(key, _)| *key == text).map(|(_, it)| it)
        });
        found.collect()
    }

    /// Returns each text once, in the order of the numbers.
    pub fn texts(&self) -> impl ExactSizeIterator<Item = &'a str> {
        self.texts.iter().map(|(_, text)| *text)
    }
}

/// The first 16 letters as one number. It orders as the text does, up to these letters.
fn head(text: &str) -> u128 {
    let mut letters = [0; 16];
    for (letter, byte) in letters.iter_mut().zip(text.bytes()) {
        *letter = byte;
    }
    u128::from_be_bytes(letters)
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
            prop_assert_eq!(numbering.at(texts.len()), None);
        }
    }
}
