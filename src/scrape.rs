//! One metrics page from a shared look, inside the scrape's deadline.
