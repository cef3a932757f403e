//! Sizes on the heap.

/// Returns the bytes that a vector has on the heap.
pub(crate) fn vec_bytes<T>(vec: &Vec<T>) -> usize {
    vec.capacity() * size_of::<T>()
}
