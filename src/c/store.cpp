#include "c/store.hpp"

#include "c/guard.hpp"
#include "c/structs.hpp"

struct gradsync_bytes {
  std::string text;
};

namespace gradsync::c {
namespace {

class CallerStore : public KeyValueStore {
 public:
  explicit CallerStore(const gradsync_store& functions) : functions_(functions) {}

  void set(const std::string& key, std::string_view value) override {
    check("set", key, functions_.set(functions_.context, key.c_str(), value.data(), value.size()));
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    gradsync_bytes value;
    check("get", key,
          functions_.get(functions_.context, key.c_str(), std::chrono::nanoseconds(timeout).count(), &value));
    return std::move(value.text);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    std::int64_t sum = 0;
    check("add", key, functions_.add(functions_.context, key.c_str(), amount, &sum));
    return sum;
  }
  void remove(const std::string& key) override {
    if (functions_.remove != nullptr) check("remove", key, functions_.remove(functions_.context, key.c_str()));
  }

 private:
  static void check(const char* call, const std::string& key, gradsync_code code) {
    if (code == GRADSYNC_OK) return;
    const bool timeout = code == GRADSYNC_TIMEOUT;
    throw Error(failure(timeout ? ErrorCode::timeout : ErrorCode::unavailable, "the store's {} of '{}' returned {}",
                        call, key, gradsync_code_name(code)));
  }

  gradsync_store functions_;
};

}  // namespace

std::shared_ptr<KeyValueStore> store_of(const gradsync_store& given) {
  const gradsync_store store = read_struct("gradsync_store", &given, gradsync_store{});
  if (store.set == nullptr || store.get == nullptr || store.add == nullptr)
    refuse(ErrorCode::invalid_argument, "gradsync_store.{} is null",
           store.set == nullptr   ? "set"
           : store.get == nullptr ? "get"
                                  : "add");
  return std::make_shared<CallerStore>(store);
}

}  // namespace gradsync::c

extern "C" gradsync_code gradsync_bytes_assign(gradsync_bytes* bytes, const void* data, size_t count) {
  using namespace gradsync::c;
  return guarded(__func__, [&] {
    require(bytes, "the value");
    if (count > 0) require(data, "the address of the bytes");
    bytes->text.assign(static_cast<const char*>(data), count);
  });
}
