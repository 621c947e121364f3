"""The rules of the doctor: `examine(view)` of each rule yields findings of one cause."""
