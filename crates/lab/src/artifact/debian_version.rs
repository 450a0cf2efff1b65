//! Versions of Debian packages, in dpkg's order.

use std::cmp::Ordering;

/// Which of two versions is the newer one, as `dpkg --compare-versions` says.
pub fn compare(a: &str, b: &str) -> Ordering {
    let (a, b) = (parts(a), parts(b));
    let of_parts = |(a, b)| compare_part(a, b);
    of_parts((a.0, b.0))
        .then_with(|| of_parts((a.1, b.1)))
        .then_with(|| of_parts((a.2, b.2)))
}

/// Whether `version` is what a dependency asks for: ">= 6.1".
pub fn satisfies(version: &str, relation: &str, wanted: &str) -> bool {
    let order = compare(version, wanted);
    match relation {
        "<<" => order.is_lt(),
        "<=" => order.is_le(),
        "=" => order.is_eq(),
        ">=" => order.is_ge(),
        ">>" => order.is_gt(),
        _ => false,
    }
}

/// Epoch, upstream's version and Debian's revision.
fn parts(version: &str) -> (&str, &str, &str) {
    let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, "0"));
    (epoch, upstream, revision)
}

/// What is no number and what is one take turns.
fn compare_part(mut a: &str, mut b: &str) -> Ordering {
    while !(a.is_empty() && b.is_empty()) {
        let (word_a, word_b) = (
            head(&mut a, |c| !c.is_ascii_digit()),
            head(&mut b, |c| !c.is_ascii_digit()),
        );
        let (number_a, number_b) = (
            head(&mut a, |c| c.is_ascii_digit()).trim_start_matches('0'),
            head(&mut b, |c| c.is_ascii_digit()).trim_start_matches('0'),
        );
        let numbers = || {
            let by_length = number_a.len().cmp(&number_b.len());
            by_length.then_with(|| number_a.cmp(number_b))
        };
        let order = ranks(word_a).cmp(ranks(word_b)).then_with(numbers);
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Takes what `of` holds for off the front.
fn head<'t>(text: &mut &'t str, of: impl Fn(char) -> bool) -> &'t str {
    let end = text.find(|c| !of(c)).unwrap_or(text.len());
    let (head, rest) = text.split_at(end);
    *text = rest;
    head
}

/// A tilde is before the end, the end before letters, letters before all else.
fn ranks(word: &str) -> impl Iterator<Item = u32> {
    let rank = |c: char| match c {
        '~' => 0,
        c if c.is_ascii_alphabetic() => u32::from(c),
        c => u32::from(c) + 256,
    };
    word.chars().map(rank).chain(std::iter::once(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    #[test]
    fn kernels_are_ordered_by_number_and_backports_are_before_what_they_are_of() {
        let ascending = [
            "6.1.176-1",
            "6.1.192-2",
            "6.1.192-3",
            "6.12.90-1~bpo12+1",
            "6.12.90-1~deb12u1",
            "6.12.90-1",
            "6.12.90.1-1",
            "6.12.100-1",
            "7.3.4-1~bpo13+1",
            "1:7.2+dfsg-7+deb12u18",
            "1:10.0.2+ds-2+deb13u1~bpo12+1",
        ];
        for (index, a) in ascending.iter().enumerate() {
            for (other, b) in ascending.iter().enumerate() {
                assert_eq!(compare(a, b), index.cmp(&other), "{a} {b}");
            }
        }
        assert!(satisfies("6.1.192-3", ">=", "6.1.192-2"));
        assert!(!satisfies("6.1.192-3", "=", "6.1.192-2"));
        assert!(!satisfies("6.1.192-3", ">>", "6.1.192-3"));
        assert!(satisfies("6.1.192-3", "<=", "6.1.192-3"));
        assert!(satisfies("6.1.192-2", "<<", "6.1.192-3"));
        assert!(!satisfies("6.1.192-3", "?", "6.1.192-3"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn the_order_is_dpkgs(
            a in "([0-9]:)?[0-9][0-9a-z.+~]{0,6}(-[0-9a-z+.~]{1,4})?",
            b in "([0-9]:)?[0-9][0-9a-z.+~]{0,6}(-[0-9a-z+.~]{1,4})?",
        ) {
            let relation = match compare(&a, &b) {
                Ordering::Less => "lt-nl",
                Ordering::Equal => "eq",
                Ordering::Greater => "gt-nl",
            };
            let dpkg = Command::new("dpkg").args(["--compare-versions", &a, relation, &b]).status();
            prop_assert!(dpkg.unwrap().success(), "{a} {relation} {b}");
        }

        #[test]
        fn no_text_makes_it_panic(a in any::<String>(), b in any::<String>()) {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
        }
    }
}
