"""The description of a feed (`Pipeline`), its validation (`FeedRequest`), and its plan (`Plan`)."""
