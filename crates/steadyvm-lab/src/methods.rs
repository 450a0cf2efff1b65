//! Lists of methods on the command line.

/// The methods in their order, a method named twice once.
pub fn without_repeats<M: Copy + PartialEq>(methods: &[M]) -> Vec<M> {
    let mut unique = Vec::new();
    for method in methods {
        if !unique.contains(method) {
            unique.push(*method);
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_stays_where_it_was() {
        assert_eq!(without_repeats(&["b", "a", "b", "c", "a"]), ["b", "a", "c"]);
        assert!(without_repeats::<u8>(&[]).is_empty());
    }
}
