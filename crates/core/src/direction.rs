//! The two directions of a line, and values that exist once for each of them.
//!
//! Download and upload are what the user of the line sees. The kernel's words, ingress and egress, depend on the device:
//! on the device that faces the internet the download is ingress and the upload is egress; on one that faces the home
//! (`option facing lan`) it is the other way round.

use core::ops::{Index, IndexMut};

/// A direction of a line, as its user sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the internet to the home.
    Download,
    /// From the home to the internet.
    Upload,
}

impl Direction {
    /// Both directions, in the order in which they are stored and printed.
    pub const BOTH: [Self; 2] = [Self::Download, Self::Upload];

    /// The opposite direction: the one in which acknowledgements travel.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Download => Self::Upload,
            Self::Upload => Self::Download,
        }
    }

    /// `download` or `upload`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Download => "download",
            Self::Upload => "upload",
        }
    }
}

/// One value for each direction. Index it by [`Direction`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PerDirection<T> {
    /// The value for [`Direction::Download`].
    pub download: T,
    /// The value for [`Direction::Upload`].
    pub upload: T,
}

impl<T> PerDirection<T> {
    /// A value for each direction, made by `make`, which is called for the download first.
    pub fn from_fn(mut make: impl FnMut(Direction) -> T) -> Self {
        Self {
            download: make(Direction::Download),
            upload: make(Direction::Upload),
        }
    }

    /// `value` for both directions.
    pub fn both(value: T) -> Self
    where
        T: Clone,
    {
        Self {
            download: value.clone(),
            upload: value,
        }
    }

    /// The value for `direction`.
    pub const fn get(&self, direction: Direction) -> &T {
        match direction {
            Direction::Download => &self.download,
            Direction::Upload => &self.upload,
        }
    }

    /// The value for `direction`, to be changed.
    pub const fn get_mut(&mut self, direction: Direction) -> &mut T {
        match direction {
            Direction::Download => &mut self.download,
            Direction::Upload => &mut self.upload,
        }
    }

    /// References to both values.
    pub const fn as_ref(&self) -> PerDirection<&T> {
        PerDirection {
            download: &self.download,
            upload: &self.upload,
        }
    }

    /// Applies `change` to both values.
    pub fn map<U>(self, mut change: impl FnMut(T) -> U) -> PerDirection<U> {
        PerDirection {
            download: change(self.download),
            upload: change(self.upload),
        }
    }

    /// Pairs each value with the one of `other` for the same direction.
    pub fn zip<U>(self, other: PerDirection<U>) -> PerDirection<(T, U)> {
        PerDirection {
            download: (self.download, other.download),
            upload: (self.upload, other.upload),
        }
    }

    /// Both values with their directions, the download first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Direction, &T)> + ExactSizeIterator {
        [
            (Direction::Download, &self.download),
            (Direction::Upload, &self.upload),
        ]
        .into_iter()
    }

    /// Both values with their directions, the download first, to be changed.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (Direction, &mut T)> + ExactSizeIterator {
        [
            (Direction::Download, &mut self.download),
            (Direction::Upload, &mut self.upload),
        ]
        .into_iter()
    }

    /// Both values, the download first.
    pub fn into_array(self) -> [T; 2] {
        [self.download, self.upload]
    }
}

impl<T> From<[T; 2]> for PerDirection<T> {
    /// The download comes first, as in [`Direction::BOTH`].
    fn from([download, upload]: [T; 2]) -> Self {
        Self { download, upload }
    }
}

impl<T> Index<Direction> for PerDirection<T> {
    type Output = T;

    fn index(&self, direction: Direction) -> &T {
        self.get(direction)
    }
}

impl<T> IndexMut<Direction> for PerDirection<T> {
    fn index_mut(&mut self, direction: Direction) -> &mut T {
        self.get_mut(direction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_has_its_own_value() {
        let mut values = PerDirection::from_fn(Direction::name);
        assert_eq!((values.download, values.upload), ("download", "upload"));
        values[Direction::Upload] = "changed";
        assert_eq!(values.get(Direction::Download), &"download");
        assert_eq!(values.into_array(), ["download", "changed"]);
        assert_eq!(
            Direction::BOTH.map(|direction| values[direction]),
            values.into_array()
        );
    }

    #[test]
    fn mapping_and_zipping_keep_the_directions_apart() {
        let lengths = PerDirection {
            download: 1,
            upload: 20,
        };
        assert_eq!(lengths.map(|length| length + 1), PerDirection::from([2, 21]));
        let pairs = lengths.zip(PerDirection::both('x'));
        assert_eq!(pairs.upload, (20, 'x'));
        let listed: alloc::vec::Vec<_> = lengths.iter().collect();
        assert_eq!(listed, [(Direction::Download, &1), (Direction::Upload, &20)]);
    }

    #[test]
    fn changes_through_the_iterator_stay() {
        let mut values = PerDirection::both(1);
        for (direction, value) in values.iter_mut() {
            *value += i32::from(direction == Direction::Upload);
        }
        assert_eq!(
            values,
            PerDirection {
                download: 1,
                upload: 2
            }
        );
    }

    #[test]
    fn the_opposite_of_the_opposite_is_the_direction_itself() {
        for direction in Direction::BOTH {
            assert_ne!(direction.other(), direction);
            assert_eq!(direction.other().other(), direction);
        }
    }
}
