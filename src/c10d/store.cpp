#include "c10d/store.hpp"

#include <fmt/format.h>

#include <vector>

#include "gradsync/error.hpp"

namespace gradsync::pytorch {
namespace {

class Meeting final : public KeyValueStore {
 public:
  Meeting(c10::intrusive_ptr<::c10d::Store> store, std::string prefix)
      : store_(std::move(store)),
        prefix_(std::move(prefix)) {}

  void set(const std::string& key, std::string_view value) override {
    store_->set(prefix_ + key, std::vector<std::uint8_t>(value.begin(), value.end()));
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const auto until = std::chrono::steady_clock::now() + timeout;
    try {
      store_->wait({prefix_ + key}, timeout);
    } catch (const std::exception& error) {  // of a type that differs between stores, for a timeout too
      if (std::chrono::steady_clock::now() < until) throw;
      throw Error(Status{ErrorCode::timeout, -1,
                         fmt::format("the store has no key {} after {} ms: {}", key, timeout.count(), error.what())});
    }
    const std::vector<std::uint8_t> value = store_->get(prefix_ + key);
    return std::string(value.begin(), value.end());
  }

  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_->add(prefix_ + key, amount); }

  void remove(const std::string& key) override {
    try {
      store_->deleteKey(prefix_ + key);
    } catch (const std::exception&) {  // some stores cannot: then the key stays
    }
  }

 private:
  const c10::intrusive_ptr<::c10d::Store> store_;
  const std::string prefix_;
};

}  // namespace

std::shared_ptr<KeyValueStore> meeting_in(c10::intrusive_ptr<::c10d::Store> store, std::string prefix) {
  return std::make_shared<Meeting>(std::move(store), std::move(prefix));
}

}  // namespace gradsync::pytorch
