//! The order of an array's dimensions in memory: C order, channels last, or any other without gaps. Pure numbers.
//!
//! A batch that can be cut has its samples one after the other, so its first dimension is the outermost. Each sample keeps
//! its order: a sample of a channels-last batch is stored as height, width, channels.

use serde::{Deserialize, Serialize};

use crate::bounded;

/// An array's dimensions, the outermost first. Empty for C order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DimOrder(#[serde(deserialize_with = "bounded::list")] Vec<u8>);

impl DimOrder {
    /// The order that strides describe. C order, if they repeat elements or there are none.
    pub fn of_strides(shape: &[u64], strides: &[i64]) -> Self {
        let is_repeated = |(&len, &stride): (&u64, &i64)| len > 1 && stride == 0;
        if shape.len() > usize::from(u8::MAX) || shape.contains(&0) || shape.iter().zip(strides).any(is_repeated) {
            return Self::default();
        }
        let mut dims: Vec<u8> = (0..shape.len() as u8).collect();
        // The stride of a dimension of length 1 means nothing; frameworks choose it so that it looks like the others.
        dims.sort_by_key(|&dim| {
            let (len, stride) = (shape[usize::from(dim)], strides[usize::from(dim)].unsigned_abs());
            let is_outermost = dim == 0 && len == 1;
            (!is_outermost, u64::MAX - stride, len == 1)
        });
        Self::of_dims(dims)
    }

    fn of_dims(dims: Vec<u8>) -> Self {
        if dims.is_sorted() { Self::default() } else { Self(dims) }
    }

    /// Whether it is C order.
    pub fn is_c(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an array with this many dimensions can have it.
    pub fn is_sound(&self, dims: usize) -> bool {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        self.is_c()
            || (sorted.len() == dims && sorted.iter().enumerate().all(|(index, &dim)| index == usize::from(dim)))
    }

    /// The dimensions, the outermost first.
    pub fn dims(&self, count: usize) -> Vec<usize> {
        if self.is_c() { (0..count).collect() } else { self.0.iter().map(|&dim| dim.into()).collect() }
    }

    /// The strides of an array that lies in this order without gaps, in units of `unit`. The shape was checked to be countable.
    pub fn strides(&self, shape: &[u64], unit: u64) -> Vec<i64> {
        let mut strides = vec![0; shape.len()];
        let mut stride = unit;
        for &dim in self.dims(shape.len()).iter().rev() {
            strides[dim] = stride as i64;
            stride *= shape[dim].max(1);
        }
        strides
    }

    /// Whether an array with these strides lies in this order, without gaps.
    pub fn is_dense(&self, shape: &[u64], strides: &[i64], unit: u64) -> bool {
        let dense = self.strides(shape, unit);
        let fits = |((&len, &stride), &dense): ((&u64, &i64), &i64)| len <= 1 || stride == dense;
        shape.contains(&0) || shape.iter().zip(strides).zip(&dense).all(fits)
    }

    /// The order of a sample of a batch that has this order.
    pub fn of_sample(&self) -> Self {
        Self::of_dims(self.0.iter().filter(|&&dim| dim != 0).map(|&dim| dim - 1).collect())
    }

    /// Whether a batch in the order `batch` has its samples one after the other, and each of them in this order.
    pub fn is_sample_of(&self, batch: &Self) -> bool {
        match batch.0.split_first() {
            None => self.is_c(),
            Some((&0, dims)) => dims.iter().map(|dim| dim - 1).eq(self.0.iter().copied()),
            Some(_) => false,
        }
    }

    /// The order of a batch of samples that have this one.
    pub fn of_batch(&self) -> Self {
        if self.is_c() {
            Self::default()
        } else {
            Self(std::iter::once(0).chain(self.0.iter().map(|dim| dim + 1)).collect())
        }
    }

    /// Elements of `item` bytes in this order, copied into another. Some nanoseconds for each run of elements that stays
    /// together.
    pub fn reordered(&self, to: &Self, shape: &[u64], item: usize, bytes: &[u8]) -> Vec<u8> {
        let (from, mut dims) = (self.strides(shape, item as u64), to.dims(shape.len()));
        let mut run = item;
        while let Some(&inner) = dims.last()
            && from[inner] as usize == run
        {
            run *= shape[inner] as usize;
            dims.pop();
        }
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = vec![0; dims.len()];
        let mut offset = 0;
        while out.len() < bytes.len() {
            out.extend_from_slice(&bytes[offset..offset + run]);
            for (index, &dim) in dims.iter().enumerate().rev() {
                offset += from[dim] as usize;
                at[index] += 1;
                if at[index] < shape[dim] {
                    break;
                }
                offset -= from[dim] as usize * shape[dim] as usize;
                at[index] = 0;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order(dims: &[u8]) -> DimOrder {
        DimOrder::of_dims(dims.to_vec())
    }

    #[test]
    fn strides_tell_the_order() {
        let channels_last = DimOrder::of_strides(&[8, 3, 5, 7], &[105, 1, 21, 3]);
        assert_eq!(channels_last, order(&[0, 2, 3, 1]));
        assert_eq!(channels_last.strides(&[8, 3, 5, 7], 1), [105, 1, 21, 3]);
        assert_eq!(channels_last.of_sample(), order(&[1, 2, 0]));
        assert!(channels_last.of_sample().is_sample_of(&channels_last));
        assert!(!DimOrder::default().is_sample_of(&channels_last));
        assert_eq!(DimOrder::of_strides(&[8, 3, 5, 7], &[105, 35, 7, 1]), DimOrder::default());
        assert_eq!(DimOrder::of_strides(&[8, 3], &[1, 8]), order(&[1, 0]), "the batch is innermost");
        assert!(!DimOrder::default().is_sample_of(&order(&[1, 0])));
    }

    #[test]
    fn dimensions_of_length_one_stand_where_frameworks_mean_them_to() {
        assert_eq!(DimOrder::of_strides(&[8, 1, 5, 7], &[35, 1, 7, 1]), order(&[0, 2, 3, 1]), "one channel, last");
        assert_eq!(DimOrder::of_strides(&[8, 1, 5, 7], &[35, 35, 7, 1]), DimOrder::default());
        assert_eq!(
            DimOrder::of_strides(&[8, 3, 1, 1], &[3, 1, 3, 3]),
            order(&[0, 2, 3, 1]),
            "one pixel, channels last"
        );
        assert_eq!(DimOrder::of_strides(&[8, 3, 1, 1], &[3, 1, 1, 1]), DimOrder::default());
        assert_eq!(DimOrder::of_strides(&[1, 3, 5, 7], &[3, 1, 21, 3]), order(&[0, 2, 3, 1]), "one sample, unsqueezed");
    }

    #[test]
    fn repeated_and_missing_elements_are_in_c_order() {
        assert!(DimOrder::of_strides(&[8, 3, 5, 7], &[35, 0, 7, 1]).is_c(), "grey made RGB by expanding");
        assert!(DimOrder::of_strides(&[8, 0, 5], &[0, 1, 8]).is_c());
    }

    #[test]
    fn only_permutations_are_sound() {
        assert!(order(&[2, 0, 1]).is_sound(3) && DimOrder::default().is_sound(3));
        for (dims, count) in [(&[2, 0, 1][..], 2), (&[1, 1, 0], 3), (&[3, 1, 0], 3), (&[1, 0], 3)] {
            assert!(!DimOrder(dims.to_vec()).is_sound(count), "{dims:?}");
        }
    }

    proptest! {
        /// Every element is found where the strides of either order say that it is.
        #[test]
        fn reordering_moves_bytes_and_no_element(
            (shape, from, to) in prop::collection::vec(1_u64..5, 1..5).prop_flat_map(|shape| {
                let dims: Vec<u8> = (0..shape.len() as u8).collect();
                (Just(shape), Just(dims.clone()).prop_shuffle(), Just(dims).prop_shuffle())
            }),
            item in prop::sample::select(vec![1_usize, 2, 8]),
        ) {
            let (from, to) = (order(&from), order(&to));
            let count = shape.iter().product::<u64>() as usize;
            let bytes: Vec<u8> = (0..count * item).map(|byte| (byte / 7) as u8 ^ byte as u8).collect();
            let moved = from.reordered(&to, &shape, item, &bytes);
            prop_assert_eq!(moved.len(), bytes.len());
            let (from, to) = (from.strides(&shape, item as u64), to.strides(&shape, item as u64));
            for index in 0..count {
                let mut rest = index as u64;
                let (mut old, mut new) = (0, 0);
                for (dim, &len) in shape.iter().enumerate() {
                    old += (rest % len) as usize * from[dim] as usize;
                    new += (rest % len) as usize * to[dim] as usize;
                    rest /= len;
                }
                prop_assert_eq!(&bytes[old..old + item], &moved[new..new + item]);
            }
        }
    }
}
