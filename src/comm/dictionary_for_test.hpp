// A store as a program may bring one: a map behind a lock, for ranks that are threads.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "gradsync/store.hpp"

namespace gradsync {

// What every store is made of: values that can be waited for, and numbers.
class Dictionary : public KeyValueStore {
 public:
  void set(const std::string& key, std::string_view value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); }))
      throw Error(failure(ErrorCode::timeout, "nobody has set {}", key));
    return values_[key];
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const std::lock_guard lock(mutex_);
    return numbers_[key] += amount;
  }
  void remove(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }
  std::vector<std::string> keys() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> keys;
    for (const auto& [key, value] : values_) keys.push_back(key);
    return keys;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::int64_t> numbers_;
};

}  // namespace gradsync
