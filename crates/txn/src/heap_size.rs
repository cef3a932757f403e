//! How much of the heap something takes.

/// Returns how many bytes a vector has.
pub(crate) fn vec_bytes<T>(vec: &Vec<T>) -> usize {
    vec.capacity() * size_of::<T>()
}
