"""What the doctor says: one screen, a page to share, a document for machines."""
