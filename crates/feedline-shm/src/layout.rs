//! Where each lane of a ring stands in its memfd: plain arithmetic.
//!
//! A ring has one lane per field. A lane is a byte ring of its own, any multiple of the page long; positions on it
//! are 64-bit byte offsets that only grow. Large lanes are made of huge pages, so they begin and end at those.

/// What a huge page is here. Where it is another size, nothing is gained and nothing lost.
pub(crate) const HUGE_PAGE: u64 = 2 << 20;

/// From this length on, rounding a lane up to huge pages wastes little.
const LARGE_LANE: u64 = 4 * HUGE_PAGE;

/// The page size of this machine, in bytes.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// One byte ring inside the memfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Where the lane begins in the memfd.
    pub offset_bytes: u64,
    /// How long it is: a positive multiple of the page.
    pub len_bytes: u64,
}

impl Lane {
    /// Whether it is made of whole huge pages.
    pub(crate) fn is_huge(&self) -> bool {
        self.len_bytes >= LARGE_LANE && self.offset_bytes.is_multiple_of(HUGE_PAGE)
    }

    /// The place in the memfd of a position that only grows.
    pub fn wrap(&self, position: u128) -> u64 {
        (position % u128::from(self.len_bytes)) as u64
    }
}

/// The lanes of one ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    lanes: Vec<Lane>,
    len_bytes: u64,
}

impl Layout {
    /// Lanes of at least these many bytes each, rounded up to pages (an empty one gets a page).
    ///
    /// `None` if the sum, doubled for the mirror, exceeds what a process can address.
    pub fn new(wanted_bytes: impl IntoIterator<Item = u64>) -> Option<Self> {
        let page = page_size();
        let wanted_bytes: Vec<u64> = wanted_bytes.into_iter().collect();
        let mut lanes = vec![Lane { offset_bytes: 0, len_bytes: 0 }; wanted_bytes.len()];
        let mut offset_bytes = 0_u64;
        // The large ones come first, so that none needs padding before it.
        for is_large in [true, false] {
            let unit = if is_large { HUGE_PAGE.max(page) } else { page };
            for (lane, &wanted) in lanes.iter_mut().zip(&wanted_bytes) {
                if (wanted >= LARGE_LANE) == is_large {
                    *lane = Lane { offset_bytes, len_bytes: wanted.max(1).checked_next_multiple_of(unit)? };
                    offset_bytes = offset_bytes.checked_add(lane.len_bytes)?;
                }
            }
        }
        let addressable = offset_bytes.checked_mul(2).is_some_and(|doubled| doubled < 1 << 46);
        addressable.then_some(Self { lanes, len_bytes: offset_bytes })
    }

    /// The lanes in order.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// The memfd's length.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
}
