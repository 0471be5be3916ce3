//! Changes of reviews and of comments on lines.

use super::edit::Edit;
use super::next;
use super::rows::{LineComment, Review, Verdict, seconds};
use super::tables::Seen;
use idempoll::engine::item::Kind;

impl Edit<'_> {
    /// Reviews a pull request and says the review's id.
    pub fn review(&mut self, number: u64, by: &str, verdict: Verdict, body: &str) -> u64 {
        let id = self.draft_review(number, by);
        self.submit_review(id, verdict, body);
        id
    }

    /// Begins a review, which nobody else sees; says its id.
    pub fn draft_review(&mut self, number: u64, by: &str) -> u64 {
        assert_eq!(self.item(number).kind, Kind::PullRequest);
        let id = next(&mut self.ids.review);
        let review = Review {
            item: number,
            by: by.into(),
            verdict: Verdict::Pending,
            body: String::new(),
            submitted: None,
        };
        self.repo.reviews.put(self.now, id, review);
        id
    }

    /// Submits a review that was begun, with its comments on lines: these keep
    /// the time of their drafts and have changed now.
    pub fn submit_review(&mut self, id: u64, verdict: Verdict, body: &str) {
        let at = seconds(self.now);
        let mut review = self.repo.reviews.take("review", id);
        review.verdict = verdict;
        review.body = body.into();
        review.submitted = Some(at);
        self.move_in_pulls(review.item);
        self.repo.reviews.put(self.now, id, review);
        let comments = self.repo.line_comments.all(Seen::Now);
        let drafts: Vec<u64> = comments
            .filter(|(_, c)| c.review == id && c.draft)
            .map(|(id, _)| id)
            .collect();
        for id in drafts {
            let mut comment = self.repo.line_comments.take("line comment", id);
            comment.draft = false;
            comment.updated = at;
            self.repo.line_comments.put(self.now, id, comment);
        }
    }

    /// Dismisses a review; it keeps its text and the time it was submitted.
    pub fn dismiss_review(&mut self, id: u64) {
        let mut review = self.repo.reviews.take("review", id);
        review.verdict = Verdict::Dismissed;
        self.move_in_pulls(review.item);
        self.repo.reviews.put(self.now, id, review);
    }

    pub fn edit_review(&mut self, id: u64, body: &str) {
        let mut review = self.repo.reviews.take("review", id);
        review.body = body.into();
        self.move_in_pulls(review.item);
        self.repo.reviews.put(self.now, id, review);
    }

    /// Comments on a line, outside of any review: GitHub makes one of its own
    /// for it, without a text. Says the comment's id.
    pub fn line_comment(&mut self, number: u64, by: &str, body: &str) -> u64 {
        let review = self.draft_review(number, by);
        let id = self.draft_line_comment(review, body);
        self.submit_review(review, Verdict::Commented, "");
        id
    }

    /// Answers a comment on a line.
    pub fn reply(&mut self, to: u64, by: &str, body: &str) -> u64 {
        let number = self.repo.line_comments.take("line comment", to).item;
        let id = self.line_comment(number, by, body);
        let mut comment = self.repo.line_comments.take("line comment", id);
        comment.reply_to = Some(to);
        self.repo.line_comments.put(self.now, id, comment);
        id
    }

    /// Comments on a line as part of a review that was begun.
    pub fn draft_line_comment(&mut self, review: u64, body: &str) -> u64 {
        let of = self.repo.reviews.take("review", review);
        assert_eq!(of.verdict, Verdict::Pending, "it was submitted");
        let id = next(&mut self.ids.line_comment);
        let at = seconds(self.now);
        let comment = LineComment {
            item: of.item,
            review,
            reply_to: None,
            by: of.by,
            body: body.into(),
            created: at,
            updated: at,
            draft: true,
        };
        self.repo.line_comments.put(self.now, id, comment);
        id
    }

    pub fn edit_line_comment(&mut self, id: u64, body: &str) {
        let mut comment = self.repo.line_comments.take("line comment", id);
        comment.body = body.into();
        comment.updated = seconds(self.now);
        if !comment.draft {
            self.move_in_pulls(comment.item);
        }
        self.repo.line_comments.put(self.now, id, comment);
    }

    pub fn delete_line_comment(&mut self, id: u64) {
        let number = self.repo.line_comments.take("line comment", id).item;
        if self.deletion_moves_item {
            self.move_in_pulls(number);
        }
        self.repo.line_comments.remove(self.now, id);
    }

    pub(super) fn take_out_reviews(&mut self, number: u64) {
        let (repo, now) = (&mut *self.repo, self.now);
        let comments = repo.line_comments.all(Seen::Now);
        let of_item = comments.filter(|(_, c)| c.item == number);
        for id in of_item.map(|(id, _)| id).collect::<Vec<_>>() {
            repo.line_comments.remove(now, id);
        }
        let reviews = repo.reviews.all(Seen::Now);
        let of_item = reviews.filter(|(_, r)| r.item == number);
        for id in of_item.map(|(id, _)| id).collect::<Vec<_>>() {
            repo.reviews.remove(now, id);
        }
    }
}
