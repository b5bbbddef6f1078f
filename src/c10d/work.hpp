// The handle of a call, as PyTorch knows it.
//
// What remains to be done when the engine has finished (staging is written back, the profiler told, the future completed) is
// done once, by whichever thread notices first: the one that waits, one that asks whether it is done, or a completion thread if
// somebody holds the future. A call that waits drives the engine itself, without a hand-off.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "c10d/staging.hpp"

namespace gradsync::pytorch {

class Session;
class Task;

struct CallName {
  ::c10d::OpType type = ::c10d::OpType::UNKNOWN;
  const char* name = "";   // "all_reduce", for errors
  const char* title = "";  // "gradsync:all_reduce", for the profiler
};

// Whether it waits for the calls before it: only collectives do.
enum class Order : std::uint8_t { collective, point_to_point };

class GroupWork final : public ::c10d::Work {
 public:
  // A call that is ready to be handed to the engine, then one that has been.
  struct Plan {
    CallName call;
    Order order = Order::collective;
    std::vector<at::Tensor> shown;                 // what the profiler shows the shapes of
    std::vector<std::vector<at::Tensor>> outputs;  // for result() and the future
    std::vector<at::Tensor> used;                  // memory that must live until it has ended
    std::vector<CopyBack> copies;
    std::vector<gradsync::Work> parts;                 // of the engine
    std::shared_ptr<Task> task;                        // on a thread of its own
    std::vector<c10::intrusive_ptr<GroupWork>> calls;  // that this one stands for
    std::chrono::nanoseconds timeout{0};
    std::chrono::steady_clock::time_point began;
  };

  GroupWork(std::shared_ptr<Session> session, Plan plan);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override {}
  // Until it has ended, or at most `timeout`: then it goes on, and this throws Error(timeout).
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
#if GRADSYNC_TORCH_SINCE(2, 1)
  uint64_t getSequencenumber() const override;
#endif

  Order order() const { return plan_.order; }
  bool ended() const;  // as far as the engine is concerned; never blocks
  void wait_to_end();  // never throws; the operation's deadline bounds it
  void settle();       // once it has ended
  c10::intrusive_ptr<GroupWork> self();

 private:
  bool wait_at_most(std::chrono::nanoseconds duration);
  Status status() const;
  void conclude();
  void complete_future();
  std::string text_of(const Status& status) const;
  std::chrono::duration<double> waited() const;

  const std::shared_ptr<Session> session_;
  Plan plan_;
  std::once_flag concluded_;
  bool failed_ = false;  // once concluded
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool future_completed_ = false;
};

}  // namespace gradsync::pytorch
