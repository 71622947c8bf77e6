//! Chooses a place on a GPU for each of its slices. The driver lists the places of each profile; taken one after the
//! other, an early slice may take the only place of a later one.

/// A part of a GPU's memory, in the driver's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InstancePlacement {
    pub(super) start: u32,
    pub(super) size: u32,
}

impl InstancePlacement {
    fn overlaps(self, other: Self) -> bool {
        let end = |place: Self| place.start.saturating_add(place.size);
        self.start < end(other) && other.start < end(self)
    }
}

/// Places that do not overlap, one of each list of choices; `None` if there are none. The lists are few and short.
pub(super) fn places(choices: &[Vec<InstancePlacement>]) -> Option<Vec<InstancePlacement>> {
    let mut taken = Vec::new();
    extend(choices, &mut taken).then_some(taken)
}

fn extend(choices: &[Vec<InstancePlacement>], taken: &mut Vec<InstancePlacement>) -> bool {
    let Some((first, rest)) = choices.split_first() else {
        return true;
    };
    for place in first {
        if taken.iter().any(|other| other.overlaps(*place)) {
            continue;
        }
        taken.push(*place);
        if extend(rest, taken) {
            return true;
        }
        taken.pop();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(starts: &[u32], size: u32) -> Vec<InstancePlacement> {
        let place = |start: &u32| InstancePlacement {
            start: *start,
            size,
        };
        starts.iter().map(place).collect()
    }

    fn starts(choices: &[Vec<InstancePlacement>]) -> Option<Vec<u32>> {
        let found = places(choices)?;
        Some(found.iter().map(|place| place.start).collect())
    }

    #[test]
    fn a_place_is_found_whatever_the_first_choice_takes() {
        let half = || at(&[0, 4], 4);
        let quarter = || at(&[0, 2, 4], 2);
        assert_eq!(starts(&[half(), half()]), Some(vec![0, 4]));
        // The first half would leave one quarter alone.
        assert_eq!(starts(&[half(), quarter(), quarter()]), Some(vec![4, 0, 2]));
        assert_eq!(starts(&[half(), half(), quarter()]), None);
        assert_eq!(starts(&[vec![]]), None);
        assert_eq!(starts(&[]), Some(vec![]));
    }
}
