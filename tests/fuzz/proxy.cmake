baton_fuzz(fuzz_relay LIBS baton_proxy
           SOURCES ${PROJECT_SOURCE_DIR}/tests/support/fake_sink.c)
