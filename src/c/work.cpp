// Handles of operations under way.
#include "c/handles.hpp"

using namespace gradsync;
using namespace gradsync::c;

extern "C" {

gradsync_code gradsync_work_done(gradsync_work* work, int* done) {
  return guarded(__func__, [&] {
    require(done, "the address for the answer");
    *done = behind(work)->done();
  });
}

gradsync_code gradsync_work_wait(gradsync_work* work) {
  return guarded(__func__, [&] { behind(work)->wait(); });
}

gradsync_code gradsync_work_wait_for(gradsync_work* work, int64_t duration_ns, int* done) {
  return guarded(__func__, [&] {
    require(done, "the address for the answer");
    if (duration_ns < 0) refuse(ErrorCode::invalid_argument, "the duration is {} ns, expected 0 or more", duration_ns);
    *done = behind(work)->wait_for(std::chrono::nanoseconds(duration_ns));
  });
}

gradsync_code gradsync_work_status(gradsync_work* work) {
  return guarded(__func__, [&] { throw_if_failed(behind(work)->status()); });
}

gradsync_code gradsync_work_sequence(gradsync_work* work, uint64_t* sequence) {
  return guarded(__func__, [&] {
    require(sequence, "the address for the sequence number");
    *sequence = behind(work)->sequence();
  });
}

gradsync_code gradsync_work_source(gradsync_work* work, int* source) {
  return guarded(__func__, [&] {
    require(source, "the address for the source");
    *source = behind(work)->source();
  });
}

gradsync_code gradsync_work_completed_at(gradsync_work* work, int64_t* ns) {
  return guarded(__func__, [&] {
    require(ns, "the address for the time");
    *ns = std::chrono::nanoseconds(behind(work)->completed_at().time_since_epoch()).count();
  });
}

gradsync_code gradsync_work_free(gradsync_work* work) {
  return guarded(__func__, [&] {
    if (work != nullptr) take_back(work);
  });
}

}  // extern "C"
