"""The description of a feed (`Pipeline`), its validated form (`FeedRequest`), and its plan (`Plan`)."""
