foreach(module histogram arrival trace workload verdict record report
        load_options load_request fetch)
  baton_unit(test_${module} LIBS bench_core)
endforeach()
