#include "service/blob_store.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace caisson::service {
namespace {

class BlobStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "blob-store-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<BlobStore> Open(int64_t quota, int64_t tenant_quota) {
    Result<std::unique_ptr<BlobStore>> store = BlobStore::Open(directory_, quota, tenant_quota);
    EXPECT_TRUE(store) << store.error().message;
    return *std::move(store);
  }

  std::string directory_;
};

TEST_F(BlobStoreTest, ABlobIsItsTenantsOnly) {
  const auto store = Open(0, 0);
  const std::string name = *store->Put("acme", "secret");
  EXPECT_TRUE(store->Get("acme", name, nullptr, false));
  for (const bool old_too : {false, true}) {
    const Result<UniqueFd> other = store->Get("zeta", name, nullptr, old_too);
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().kind, ErrorKind::kNotFound);
  }
  EXPECT_EQ(*store->Put("zeta", "secret"), name);
  EXPECT_EQ(store->bytes(), 12) << "each has its own";
  EXPECT_EQ(Open(0, 0)->bytes(), 12);
}

TEST_F(BlobStoreTest, NamesOfTenantsDoNotLeaveTheDirectory) {
  const auto store = Open(0, 0);
  for (const char* tenant : {"", "a/b", "..\n", "a b"}) EXPECT_FALSE(store->Of(tenant)) << tenant;
  EXPECT_TRUE(store->Put("..", "x"));
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/t-.."));
}

TEST_F(BlobStoreTest, ATenantsQuotaIsTheTenantsAndTheWholeIsTheOperators) {
  const auto store = Open(300, 200);
  ASSERT_TRUE(store->Put("acme", std::string(180, 'a')));
  const Result<std::string> own = store->Put("acme", std::string(50, 'b'));
  ASSERT_FALSE(own);
  EXPECT_EQ(own.error().kind, ErrorKind::kExhausted);
  EXPECT_NE(own.error().message.find("blob_quota_per_tenant"), std::string::npos);
  EXPECT_EQ(own.error().message.find(directory_), std::string::npos);
  EXPECT_FALSE(store->HasRoom("acme"));
  EXPECT_TRUE(store->HasRoom("zeta"));
  EXPECT_TRUE(store->HasRoom());
  ASSERT_TRUE(store->Put("zeta", std::string(150, 'z')));
  const Status whole = store->HasRoom();
  ASSERT_FALSE(whole);
  EXPECT_EQ(whole.error().kind, ErrorKind::kSystem);
  EXPECT_EQ(whole.error().errno_value, EDQUOT);
  EXPECT_EQ(store->Put("zeta", "1").error().errno_value, EDQUOT);
}

}  // namespace
}  // namespace caisson::service
