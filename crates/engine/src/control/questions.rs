//! Observers' questions that need the worker. However many observers ask, the worker has at most
//! one question at a time.

/// The observers that ask for the counters. Those who ask before the question is sent to the worker
/// share its answer. Those who ask later wait for the next answer, which must reflect what happened
/// in between.
#[derive(Debug, Default)]
pub struct Questions {
    put: Vec<u64>,
    waiting: Vec<u64>,
}

impl Questions {
    /// A connection asks. `true`: send the question to the worker.
    pub fn ask(&mut self, connection: u64) -> bool {
        self.waiting.push(connection);
        self.put_next()
    }

    /// The worker has answered. Returns the connections concerned, and whether to ask again.
    pub fn answered(&mut self) -> (Vec<u64>, bool) {
        let served = std::mem::take(&mut self.put);
        (served, self.put_next())
    }

    fn put_next(&mut self) -> bool {
        if !self.put.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.put, &mut self.waiting);
        !self.put.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_has_one_question_at_a_time_and_nobody_gets_an_answer_from_before_asking() {
        let mut questions = Questions::default();
        assert!(questions.ask(1));
        assert!(!questions.ask(2));
        assert!(!questions.ask(3));
        assert_eq!(questions.answered(), (vec![1], true));
        assert!(!questions.ask(1));
        assert_eq!(questions.answered(), (vec![2, 3], true));
        assert_eq!(questions.answered(), (vec![1], false));
        assert!(questions.ask(4));
    }
}
