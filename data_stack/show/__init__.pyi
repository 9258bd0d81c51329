from data_stack.show.pictures import contact_sheet as contact_sheet
